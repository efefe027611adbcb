"""Where plans land and which commit is their beacon, in real git histories of every shape."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_history import History

from fourmin.ledger.git import Person, Repository
from fourmin.ledger.landings import BEACON_FILE, Landing, Landings

PLAN = "submissions/lab/box/digits/first/campaign.json"
BYTES = b'{"plan": 1}\n'


def landing_of(history: History, plan: bytes = BYTES, path: str = PLAN) -> Landing | None:
    return Landings(Repository.open(history.root, "main")).of(path, plan)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "repository")


def land_merged(history: History) -> str:
    history.branch("plan")
    history.commit({PLAN: BYTES})
    return history.merge("plan", "--no-ff", "--no-edit")


def land_squashed(history: History) -> str:
    history.branch("plan")
    history.commit({PLAN: b"draft"})
    history.commit({PLAN: BYTES})
    history.merge("plan", "--squash")
    return history.commit({})


def land_rebased(history: History) -> str:
    history.branch("plan")
    history.commit({PLAN: BYTES})
    history.git("checkout", "--quiet", "main")
    history.commit({"README.md": b"moved on"})
    history.git("checkout", "--quiet", "plan")
    history.git("rebase", "--quiet", "main")
    return history.merge("plan", "--ff-only")


def land_fast_forward(history: History) -> str:
    history.branch("plan")
    landed = history.commit({PLAN: BYTES})
    history.commit({"submissions/lab/box/notes": b"later"})
    history.merge("plan", "--ff-only")
    return landed


WAYS = [land_merged, land_squashed, land_rebased, land_fast_forward]


@pytest.mark.parametrize("land", WAYS)
@pytest.mark.parametrize("objects", ["sha1", "sha256"])
def test_a_plan_lands_and_the_next_beacon_is_its(land, objects: str, tmp_path: Path) -> None:
    history = History(tmp_path / "repository", f"--object-format={objects}")
    assert landing_of(history) is None
    landed = land(history)
    assert landing_of(history) == Landing(landed, None, stands=True)
    history.commit({"README.md": b"something else"})
    beacon = history.commit({BEACON_FILE: b"one\n"})
    history.commit({BEACON_FILE: b"two\n"})
    assert landing_of(history) == Landing(landed, beacon, stands=True)


@pytest.mark.parametrize("land", WAYS)
def test_a_beacon_before_the_landing_is_not_its(land, history: History) -> None:
    history.commit({BEACON_FILE: b"before\n"})
    land(history)
    landing = landing_of(history)
    assert landing is not None
    assert landing.beacon is None


def test_commits_that_are_no_beacon(history: History) -> None:
    history.commit({PLAN: BYTES, BEACON_FILE: b"with the plan\n"})
    history.commit({}, "--allow-empty")
    history.commit({"README.md": b"elsewhere"})
    history.commit({BEACON_FILE: b"and more\n", "README.md": b"more"})
    history.commit({BEACON_FILE: b"and more\n" * 2, "setup.txt": b"more"})
    history.commit({"deep/rules/beacon": b"another\n"})
    (history.root / BEACON_FILE).chmod(0o755)
    history.commit({})
    history.commit({BEACON_FILE: None})
    (history.root / BEACON_FILE).symlink_to("../README.md")
    history.commit({})
    (history.root / BEACON_FILE).unlink()
    history.commit({BEACON_FILE + "/inside": b"a folder\n"})
    landing = landing_of(history)
    assert landing is not None
    assert landing.beacon is None
    history.commit({BEACON_FILE + "/inside": None})
    (history.root / BEACON_FILE).rmdir()
    beacon = history.commit({BEACON_FILE: b"at last\n"})
    assert landing_of(history) == Landing(landing.commit, beacon, stands=True)


def test_a_merge_is_no_beacon(history: History) -> None:
    """A change that merged the base: beside the change's own commits, that is a beacon alone."""
    history.branch("plan")
    landed = history.commit({PLAN: BYTES})
    history.git("checkout", "--quiet", "main")
    history.commit({BEACON_FILE: b"for others\n"})
    history.git("checkout", "--quiet", "plan")
    history.git("merge", "--quiet", "--no-edit", "main")
    history.merge("plan", "--ff-only")
    assert landing_of(history) == Landing(landed, None, stands=True)


def test_what_happens_inside_a_merged_change_is_no_step_of_the_base(history: History) -> None:
    history.branch("change")
    history.commit({PLAN: BYTES})
    history.commit({BEACON_FILE: b"ground\n"})
    history.commit({BEACON_FILE: b"start\n"})
    merge = history.merge("change", "--no-ff", "--no-edit")
    assert landing_of(history) == Landing(merge, None, stands=True)


def test_the_first_landing_counts_for_ever(history: History) -> None:
    landed = history.commit({PLAN: BYTES})
    beacon = history.commit({BEACON_FILE: b"one\n"})
    history.commit({PLAN: None})
    assert landing_of(history) == Landing(landed, beacon, stands=False)
    history.commit({PLAN: BYTES})
    history.commit({BEACON_FILE: b"two\n"})
    assert landing_of(history) == Landing(landed, beacon, stands=False)


def test_other_bytes_and_other_places_are_other_plans(history: History) -> None:
    history.commit({PLAN: b"draft"})
    history.commit({BEACON_FILE: b"of the draft\n"})
    landed = history.commit({PLAN: BYTES})
    beacon = history.commit({BEACON_FILE: b"one\n"})
    assert landing_of(history) == Landing(landed, beacon, stands=True)
    draft = landing_of(history, b"draft")
    assert draft is not None
    assert not draft.stands
    assert draft.beacon != beacon
    assert landing_of(history, path=PLAN.replace("first", "second")) is None
    assert landing_of(history, b"never") is None


def test_a_link_is_no_plan(history: History) -> None:
    """Git keeps a link's target as a file's bytes are kept."""
    (history.root / PLAN).parent.mkdir(parents=True)
    (history.root / PLAN).symlink_to("target")
    history.commit({})
    assert landing_of(history, b"target") is None


def test_a_replaced_object_does_not_move_a_landing(history: History) -> None:
    landed = history.commit({PLAN: BYTES})
    other = history.commit({"README.md": b"x"})
    history.git("replace", landed, other)
    assert landing_of(history) == Landing(landed, None, stands=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.showSignature", "true"),
        ("log.showRoot", "false"),
        ("log.diffMerges", "off"),
        ("diff.renames", "copies"),
        ("color.ui", "always"),
        ("log.follow", "true"),
        ("core.quotePath", "true"),
    ],
)
def test_configuration_changes_nothing(key: str, value: str, history: History) -> None:
    landed = land_merged(history)
    beacon = history.commit({BEACON_FILE: b"one\n"})
    program = history.root.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {program}.ran\nexit 1\n")
    program.chmod(0o755)
    history.git("config", "gpg.program", str(program))
    history.git("config", key, value)
    assert landing_of(history) == Landing(landed, beacon, stands=True)
    assert not program.with_name("program.ran").exists()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("Lab", "a@b"), ("LAB ", "c@d"), True),
        (("Lab", "a@b"), ("Keeper", "A@B"), True),
        (("Lab", "a@b"), ("Keeper", "c@d"), False),
        (("", "a@b"), ("", "c@d"), False),
        ((" ", ""), ("", " "), False),
        (("a@b", ""), ("", "a@b"), False),
    ],
)
def test_who_is_one_person(one: tuple[str, str], other: tuple[str, str], same: bool) -> None:
    assert Person(*one).is_also(Person(*other)) is same


def test_names_in_another_encoding_are_the_bytes_that_stand_there(history: History) -> None:
    """Git would convert them: in UTF-7 this is a line end, after which anything could follow."""
    parent = history.git("rev-parse", "HEAD")
    history.commit({PLAN: BYTES})
    raw = (
        f"tree {history.git('rev-parse', 'HEAD^{tree}')}\nparent {parent}\n"
        "author A+AAo-B <a> 1700000000 +0000\ncommitter C+AAA-D <c> 1700000000 +0000\n"
        "encoding UTF-7\n\nchange\n"
    )
    made = history.git("hash-object", "-t", "commit", "-w", "--stdin", given=raw)
    history.git("reset", "--quiet", "--hard", made)
    (step,) = Repository.open(history.root, "main").steps(PLAN)
    assert step.author == Person("A+AAo-B", "a")
