"""Histories of a repository of submissions, by real git: each with its word, codes and status.

The plan of `lab` is proposed on the branch `change`, and `keeper` keeps `main`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from attack import errors, validate
from forger import forge
from processes import fourmin
from typer.testing import CliRunner
from worlds import campaigns, commit, copy_tree, git, known, make_repository, submit

from fourmin.base.errors import FourminError
from fourmin.cli.main import app
from fourmin.ledger.git import Repository

LAB, KEEPER = "Lab <lab@b.c>", "Keeper <keeper@d.e>"
OWN = "merged by its own submitter"
PLAN, LEDGER, BEACON = "campaign.json", "ledger.jsonl", "rules/beacon"


@dataclass
class Shared:
    """The repository; `folder` is where the campaign that is told of lies in it."""

    root: Path
    number: int = 20
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        there = campaigns(self.root / "submissions", "lab")
        made = submit(self.root / "submissions", "lab", "box", self.number, earlier=known(*there))
        self.kept = self.root.parent / f"kept-{self.number}"
        made.rename(self.kept)
        self.folder = made

    def git(self, *arguments: str, **by: Any) -> str:
        return git(self.root, *arguments, **by)

    def write(self, path: str, text: str, who: str = KEEPER, **by: Any) -> str:
        """A commit that writes a file; its id."""
        (self.root / path).write_text(text)
        return commit(self.root, who=who, **by)

    def propose(self, **by: Any) -> None:
        """A commit of the submitter with the plan alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.kept / PLAN, self.folder / PLAN)
        first = (self.kept / LEDGER).read_bytes().splitlines(keepends=True)[0]
        (self.folder / LEDGER).write_bytes(first)
        commit(self.root, **{"who": LAB} | by)

    def on(self, branch: str, *options: str, **by: Any) -> None:
        self.git("checkout", "--quiet", *options, branch, **by)

    def merge(self, *how: str, who: str = KEEPER, **by: Any) -> None:
        """The branch `change` comes to `main`."""
        self.on("main")
        self.git("merge", "--quiet", *how, "change", who=who, **by)

    def beacon(self, value: str = "11" * 32, **by: Any) -> str:
        self.on("main")
        return self.write(BEACON, value + "\n", **by)

    def run(self, beacon: str) -> None:
        """What the submitter proposes then: the campaign, with these seeds."""
        self.on("main", "-B", "change")
        self.fill(beacon)
        commit(self.root, who=LAB)

    def fill(self, beacon: str) -> None:
        shutil.copytree(self.kept, self.folder, dirs_exist_ok=True)
        line = {"file": LEDGER, "line": 2}
        forge(self.folder, [
            line | {"set": "/data/beacon", "to": beacon},
            line | {"set": "/data/registration", "to": "registered"},
        ])  # fmt: skip

    def checked(self, *options: str, root: Path | None = None) -> tuple[int, set[str], str]:
        """Of `validate`: its status, the errors, and the word of the campaign."""
        top = root or self.root
        code, said = validate(top / "submissions", *options)
        path = str(top / self.folder.relative_to(self.root))
        (word,) = (one["registration"] for one in said["checked"] if one["path"] == path)
        return code, errors(said), word

    def evidence(self, root: Path | None = None) -> list[str]:
        """What `report` says of its registration, the word first."""
        path = str((root or self.root) / self.folder.relative_to(self.root))
        (row,) = (one for one in report(root or self.root) if one["path"] == path)
        return [row["registration"], *row["evidence"][: row["evidence"].index("reference point")]]


def report(root: Path) -> list[dict[str, Any]]:
    """The rows of `fourmin report`."""
    words = ["report", str(root / "submissions"), "--format", "json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    rows: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return rows


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`main` without campaigns of `lab`, and the plan and results of one beside it."""
    root = tmp_path_factory.mktemp("histories") / "repository"
    make_repository(root)
    shutil.rmtree(root / "submissions/lab/box/digits")
    git(root, "checkout", "--quiet", "--orphan", "start")
    commit(root)
    git(root, "branch", "--force", "main", "start")
    git(root, "checkout", "--quiet", "-B", "change", "start")
    git(root, "branch", "--delete", "--force", "start")
    (root / BEACON).write_text("0f" * 32 + "\n")
    commit(root)
    git(root, "branch", "--force", "main", "change")
    Shared(root)
    return root.parent


@pytest.fixture
def shared(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    monkeypatch.setattr(Shared, "__post_init__", _again)
    copy_tree(template, tmp_path)
    return Shared(tmp_path / "repository")


def _again(self: Shared) -> None:
    self.kept = self.root.parent / f"kept-{self.number}"
    name = json.loads((self.kept / PLAN).read_text())["name"]
    self.folder = self.root / "submissions/lab/box/digits" / name


def squash(shared: Shared, who: str = KEEPER) -> None:
    """As a forge does it: its commit names the submitter as its author."""
    shared.merge("--squash", who=who)
    commit(shared.root, f"--author={LAB}", who=who)


def rebase(shared: Shared) -> None:
    shared.on("main")
    shared.write("README.md", "meanwhile\n")
    shared.on("change")
    shared.git("rebase", "--quiet", "main", who=KEEPER)
    shared.merge("--ff-only")


WAYS: dict[str, tuple[Callable[[Shared], None], bool]] = {
    "squash": (squash, False),
    "rebase": (rebase, False),
    "merge commit": (lambda s: s.merge("--no-ff", "--no-edit"), False),
    "fast-forward by the submitter": (lambda s: s.merge("--ff-only", who=LAB), True),
    "merge commit of the submitter": (
        lambda s: s.merge("--no-ff", "--no-edit", who="LAB <other@b.c>"), True,
    ),
    "squash under another name": (lambda s: squash(s, "Other <LAB@B.C>"), True),
}  # fmt: skip


@pytest.mark.parametrize(("land", "own"), WAYS.values(), ids=list(WAYS))
def test_a_plan_that_was_merged(land: Callable[[Shared], None], own: bool, shared: Shared) -> None:
    shared.propose()
    land(shared)
    shared.run(shared.beacon())
    assert shared.checked("--base", "main") == (0, set(), "registered")
    before = shared.git("rev-parse", "main")
    shared.merge("--no-ff", "--no-edit")
    for options in ([], ["--base", "main"], ["--before", before]):
        assert shared.checked(*options) == (0, set(), "registered")
    assert shared.evidence() == ["registered", "registered", *([OWN] if own else [])]


def test_a_draft_of_somebody_else_is_not_who_wrote_the_plan(shared: Shared) -> None:
    """Who first wrote these bytes counts, whoever began the file."""
    shared.folder.mkdir(parents=True)
    (shared.folder / PLAN).write_text("{}")
    commit(shared.root, who=KEEPER)
    shared.propose()
    shared.merge("--no-ff", "--no-edit", who=LAB)
    shared.run(shared.beacon())
    assert shared.evidence() == ["registered", "registered", OWN]


@pytest.mark.parametrize("ground", ["empty", "README.md"])
def test_a_beacon_ground_in_a_change_of_several_commits(ground: str, shared: Shared) -> None:
    shared.propose()
    if ground == "empty":
        tried = commit(shared.root, who=LAB)
    else:
        tried = shared.write(ground, "tried until it pleased\n", LAB)
    shared.merge("--ff-only")
    honest = shared.beacon()
    shared.run(tried)
    assert shared.checked("--base", "main") == (1, {"LED012"}, "claimed")
    assert shared.checked() == (1, {"LED012"}, "claimed")
    shared.run(honest)
    assert shared.checked("--base", "main") == (0, set(), "registered")


def test_the_beacons_file_ground_in_a_change_is_seen_before_and_after_its_push(
    shared: Shared,
) -> None:
    before = shared.git("rev-parse", "main")
    shared.propose()
    old = (shared.root / BEACON).read_text()
    shared.write(BEACON, "22" * 32 + "\n", LAB)
    shared.write(BEACON, old, LAB)
    code, said = validate(shared.root / "submissions", "--base", "main")
    assert (code, errors(said)) == (1, {"SUB020"})
    shared.merge("--ff-only")
    code, said = validate(shared.root / "submissions", "--before", before)
    assert (code, errors(said)) == (1, {"SUB020"})


def taken_away(shared: Shared) -> None:
    shutil.rmtree(shared.folder)
    commit(shared.root, who=KEEPER)


def rewritten(shared: Shared) -> None:
    shared.write(str(shared.folder.relative_to(shared.root) / PLAN), "{}")


def made_a_link(shared: Shared) -> None:
    (shared.folder / PLAN).unlink()
    (shared.folder / PLAN).symlink_to(LEDGER)
    commit(shared.root, who=KEEPER)
    (shared.folder / PLAN).unlink()


@pytest.mark.parametrize("end", [taken_away, rewritten, made_a_link])
@pytest.mark.parametrize("again", [False, True])
def test_what_was_taken_back_is_abandoned_for_good(
    end: Callable[[Shared], None], again: bool, shared: Shared
) -> None:
    shared.propose()
    squash(shared)
    beacon = shared.beacon()
    end(shared)
    (row,) = (row for row in report(shared.root) if "no longer in the tree" in row["evidence"])
    assert (row["state"], row["status"]) == ("abandoned", "unchecked")
    assert (row["path"], row["submitter"]) == (str(shared.folder), "lab")
    if again:
        shared.on("main", "-B", "change")
        shared.propose()
        squash(shared)
        (row,) = (row for row in report(shared.root) if row["submitter"] == "lab")
        assert (row["state"], row["failed_campaigns"]) == ("abandoned", 1)
        beacon = shared.beacon("22" * 32)
    shared.run(beacon)
    code, codes, word = shared.checked("--base", "main")
    assert (code, codes - {"SUB007"}, word) == (1, {"LED012"}, "claimed")
    assert shared.checked() == (1, {"LED012"}, "claimed")
    (row,) = (row for row in report(shared.root) if row["submitter"] == "lab")
    assert (row["status"], row["failed_campaigns"]) == ("invalid", 1)


def test_a_mode_is_no_change_of_a_plan(shared: Shared) -> None:
    shared.propose()
    squash(shared)
    beacon = shared.beacon()
    (shared.folder / PLAN).chmod(0o755)
    commit(shared.root, who=KEEPER)
    shared.run(beacon)
    assert shared.checked()[::2] == (0, "registered")


def test_a_plan_that_came_with_its_results(shared: Shared) -> None:
    shared.fill("12" * 20)
    commit(shared.root, who=LAB)
    for options in ([], ["--base", "main"]):
        assert shared.checked(*options) == (1, {"LED012"}, "claimed")
    squash(shared)
    assert shared.checked() == (1, {"LED012"}, "claimed")
    # Without its history there is nothing to contradict it: see docs/security.md.
    shutil.rmtree(shared.root / ".git")
    assert shared.checked() == (0, set(), "claimed")
    assert shared.evidence() == ["claimed", "claims registration", "no git history"]


@pytest.mark.parametrize(("hours", "codes"), [(25, {"CLK009"}), (2, set()), (20.9, set())])
def test_a_landing_whose_date_is_not_its_time(
    hours: float, codes: set[str], shared: Shared
) -> None:
    shared.propose(hours=hours)
    shared.merge("--ff-only")
    shared.run(shared.beacon(hours=hours))
    for options in ([], ["--base", "main"]):
        assert shared.checked(*options) == (bool(codes), codes, "registered")


def test_the_base_branch_of_a_fork_or_of_last_week(shared: Shared) -> None:
    """Another branch at hand bears the claim out: no error, and no proof."""
    origin = shared.root.parent / "origin"
    git(shared.root.parent, "clone", "--quiet", "--bare", str(shared.root), str(origin))
    shared.git("remote", "add", "origin", str(origin))
    shared.git("fetch", "--quiet", "origin")
    shared.git("remote", "set-head", "origin", "main")
    shared.propose()
    squash(shared)
    landed = shared.git("rev-parse", "main")
    beacon = shared.beacon()
    shared.run(beacon)
    assert shared.checked() == (0, set(), "claimed")
    assert shared.evidence() == [
        "claimed", "claims registration", "not on the base branch here"
    ]  # fmt: skip
    shared.git("update-ref", "refs/remotes/origin/main", landed)  # before its beacon
    assert shared.checked() == (0, set(), "claimed")
    code, codes, word = shared.checked("--base", "origin/main")  # which decides then
    assert (code, "LED012" in codes, word) == (1, True, "claimed")
    # The branch that the campaign is on did not come by the beacon; `upstream` did.
    shared.git("update-ref", "refs/remotes/upstream/main", beacon)
    shared.git("checkout", "--quiet", "--orphan", "apart")
    commit(shared.root)
    shared.git("branch", "--delete", "--force", "main", "change")
    assert shared.checked() == (0, set(), "claimed")
    shared.git("update-ref", "-d", "refs/remotes/upstream/main")
    assert shared.checked() == (1, {"LED012"}, "claimed")
    shared.git("update-ref", "refs/remotes/origin/main", beacon)
    assert shared.checked() == (0, set(), "registered")


def registered(shared: Shared) -> str:
    """The campaign, on `main`; the branch before the last push."""
    shared.propose()
    squash(shared)
    shared.run(shared.beacon())
    before = shared.git("rev-parse", "main")
    shared.merge("--no-ff", "--no-edit")
    return before


def test_a_copy_elsewhere_is_neither_proved_nor_refused(shared: Shared) -> None:
    """In somebody's project, and in a new repository that all submissions were put into."""
    registered(shared)
    parent = shared.root.parent
    words = ["claims registration", "not a submission of this repository"]
    project = parent / "project"
    shutil.copytree(shared.root, project, ignore=shutil.ignore_patterns(".git"))
    git(project, "init", "--quiet")
    commit(project)
    assert shared.checked(root=project) == (0, set(), "claimed")
    assert shared.evidence(project) == ["claimed", *words]
    copy = Path(shutil.copytree(shared.folder, shared.root / "results/copy"))
    assert validate(copy)[1]["checked"][0]["registration"] == "registered"  # its plan landed here
    other = Path(shutil.copytree(shared.kept, shared.root / "results/other"))
    forge(other, [
        {"file": PLAN, "set": "/submitter", "to": "elsewhere"},
        {"file": LEDGER, "line": 2, "set": "/data/beacon", "to": "12" * 20},
        {"file": LEDGER, "line": 2, "set": "/data/registration", "to": "registered"},
    ])  # fmt: skip
    for _ in range(2):
        code, said = validate(other)
        assert (code, errors(said)) == (0, set())
        assert said["checked"][0]["registration"] == "claimed"
        commit(shared.root, who=LAB)


def test_a_push_that_rewrites(shared: Shared) -> None:
    before = registered(shared)
    shared.git("reset", "--quiet", "--soft", f"{before}~1")
    commit(shared.root, who=KEEPER)
    code, said = validate(shared.root / "submissions", "--before", before)
    assert (code, "SUB021" in errors(said)) == (1, True)
    (finding,) = (f for f in said["findings"] if f["code"] == "SUB021")
    assert before in finding["message"]


def test_a_push_that_takes_a_campaign_away(shared: Shared) -> None:
    registered(shared)
    before = shared.git("rev-parse", "main")
    shutil.rmtree(shared.folder)
    commit(shared.root, who=KEEPER)
    code, said = validate(shared.root / "submissions", "--before", before)
    assert (code, errors(said)) == (1, {"SUB007"})


def test_what_a_push_brought_at_once_was_not_registered(shared: Shared) -> None:
    """Plan, beacon and results in one push: nobody saw the plan before."""
    before = shared.git("rev-parse", "main")
    registered(shared)
    code, codes, word = shared.checked("--before", before)
    assert (code, word) == (1, "claimed")
    assert {"LED012", "SUB020"} <= codes


@pytest.mark.parametrize("length", [40, 64])
def test_a_new_branch_has_no_state_before(length: int, shared: Shared) -> None:
    registered(shared)
    assert shared.checked("--before", "0" * length) == (0, set(), "registered")


def test_a_state_before_that_is_not_there_is_wrong_usage(shared: Shared) -> None:
    submissions = str(shared.root / "submissions")
    for options in (["--before", "12" * 20], ["--before", "main", "--base", "main"]):
        done = fourmin("validate", submissions, *options, state=shared.root.parent)
        assert done.returncode == 2
        assert "before" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_shallow_clone(shared: Shared) -> None:
    registered(shared)
    clone = shared.root.parent / "clone"
    git(shared.root.parent, "clone", "--quiet", "--depth", "1", f"file://{shared.root}", str(clone))
    assert shared.checked(root=clone) == (0, set(), "claimed")
    assert shared.evidence(clone) == ["claimed", "claims registration", "a shallow clone"]
    for options in ({"reference": "HEAD"}, {"reference": "HEAD", "pushed": True}):
        with pytest.raises(FourminError, match="shallow"):
            Repository.open(clone, **options)  # type: ignore[arg-type]


def test_a_checkout_of_another_user(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away; test_checkouts has git assume it")
    registered(shared)
    monkeypatch.setenv("HOME", str(shared.root.parent))
    for path in (shared.root, *shared.root.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    code, said = validate(shared.root / "submissions")
    assert (code, errors(said)) == (0, set())
    (note,) = (f for f in said["findings"] if f["code"] == "LED012")
    assert (note["severity"], "safe.directory" in note["hint"]) == ("note", True)
    assert shared.evidence() == ["claimed", "claims registration", "git history not readable"]
    # A plan made here would not name what the branch holds, and be refused for it.
    done = fourmin(
        "register", "--preset", "digits", "--submitter", "lab", "--system", "box",
        "--into", str(shared.root / "submissions"), state=shared.root.parent,
    )  # fmt: skip
    assert (done.returncode, "safe.directory" in done.stderr) == (2, True), done.stderr


def test_a_repository_that_came_with_a_submission_proves_nothing(shared: Shared) -> None:
    registered(shared)
    (shared.root / ".git").rename(shared.root / "submissions/lab/.git")
    code, codes, word = shared.checked()
    assert (code, word) == (1, "claimed")
    assert "SUB004" in codes


def _others(root: Path) -> list[dict[str, Any]]:
    """The rows but for words, places and what only history shows."""
    words = {"path", "registration", "evidence", "findings", "runs"}
    rows = [row for row in report(root) if "no longer in the tree" not in row["evidence"]]
    return [{name: row[name] for name in row if name not in words} for row in rows]


def test_the_same_tree_without_git_counts_the_same(template: Path, shared: Shared) -> None:
    """One failed, one of another submitter, one registered; one that is gone only git counts."""
    registered(shared)
    for number, story in ((30, {"not_converged": [1, 2]}), (31, {})):
        submit(shared.root / "submissions", "lab", "box", number, **story)
    commit(shared.root, who=KEEPER)
    without = shared.root.parent / "without"
    shutil.copytree(shared.root, without, ignore=shutil.ignore_patterns(".git"))
    assert shared.evidence() == ["registered", "registered"]
    assert shared.evidence(without)[:2] == ["claimed", "claims registration"]
    assert _others(shared.root) == _others(without)
    assert len(report(without)) == 3
    # The failed one leaves: the tree alone shows one of its group, history both.
    first, _ = sorted(path.parent for path in (shared.root / "submissions/lab").glob(
        "*/*/*/campaign.json") if path.parent != shared.folder)  # fmt: skip
    shutil.rmtree(first)
    shutil.rmtree(without / first.relative_to(shared.root))
    commit(shared.root, who=KEEPER)
    for root, campaigns_, failed in ((without, 1, 0), (shared.root, 2, 1)):
        (row,) = (
            r for r in report(root) if r["registration"] == "self" and r["submitter"] == "lab"
        )
        assert (row["campaigns"], row["failed_campaigns"]) == (campaigns_, failed)
