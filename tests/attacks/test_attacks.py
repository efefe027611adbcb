"""Every attack on honest files is found, by the rules that are for it, and ends with status 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attacks_in_git
import attacks_on_evidence
import attacks_on_places
import attacks_on_runs
import attacks_on_signers
import attacks_on_times
import pytest
import worlds
from attack import ATTACKS, WORLDS, Attack, errors, validate
from campaign_factory import make_campaign
from forger import forge

MODULES = (attacks_in_git, attacks_on_evidence, attacks_on_places, attacks_on_runs,
           attacks_on_signers, attacks_on_times)  # fmt: skip
SECURITY = Path(__file__).parents[2] / "docs/security.md"
FOUND = [one for one in ATTACKS if not one.listed]
PASSING = [one for one in ATTACKS if one.listed]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], Path]:
    """Makes a copy of a world below a folder, and says where it is."""
    made = tmp_path_factory.mktemp("worlds")
    campaign = make_campaign(made / "campaign")
    worlds.make_submissions(made / "submissions")
    worlds.make_repository(made / "repository")
    (made / "empty").mkdir()

    def copy(name: str, into: Path) -> Path:
        worlds.copy_tree(made / name, into / name)
        return into / name / campaign.name if name == "campaign" else into / name

    return copy


def checked(attack: Attack, root: Path) -> tuple[int, dict[str, Any]]:
    """What `validate` says of a world after an attack."""
    if attack.world == "repository":
        return validate(root / "submissions", "--base", "main")
    beside = [path for path in [root.parent / "results"] if path.is_dir()]
    return validate(root, *beside)


@pytest.mark.parametrize("name", WORLDS[:3])
def test_the_worlds_are_honest(
    name: str, world: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    honest = Attack("nothing", name, lambda _: None, frozenset())
    code, said = checked(honest, world(name, tmp_path))
    assert (code, errors(said)) == (0, set())
    assert {one["status"] for one in said["checked"]} == {"valid"}


@pytest.mark.parametrize("name", WORLDS[:2])
def test_making_everything_anew_changes_nothing_of_what_is_honest(
    name: str, world: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    root = world(name, tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    forge(root)
    for path, data in before.items():
        if path.name != "events.log":  # which the factory writes with other spaces
            assert path.read_bytes() == data, path


@pytest.mark.parametrize("attack", FOUND, ids=lambda attack: attack.name)
def test_an_attack_is_found(
    attack: Attack, world: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    root = world(attack.world, tmp_path)
    attack.act(root)
    code, said = checked(attack, root)
    assert attack.codes <= errors(said), sorted(
        f"{f['code']} {f['message']}" for f in said["findings"]
    )
    assert code == 1
    statuses = {one["path"].removeprefix(f"{root}/"): one["status"] for one in said["checked"]
                if one["kind"] == "campaign"}  # fmt: skip
    for name in attack.innocent:
        own = [path for path in statuses if path.startswith(f"{name}/")]
        assert any(statuses[path] == "valid" for path in own), (name, statuses)
    assert not [f for f in said["findings"] if "could not be applied" in f["message"]]


@pytest.mark.parametrize("attack", PASSING, ids=lambda attack: attack.name)
def test_what_cannot_be_found_passes(
    attack: Attack, world: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    root = world(attack.world, tmp_path)
    attack.act(root)
    code, said = checked(attack, root)
    assert (code, errors(said)) == (0, set())
    assert {one["status"] for one in said["checked"] if one["kind"] == "campaign"} == {"valid"}


def listed() -> list[str]:
    """What docs/security.md says is not preventable: the words in bold of the section's list."""
    section = SECURITY.read_text().partition("\n## Not preventable")[2].partition("\n## ")[0]
    return [line[4:].partition(".**")[0] for line in section.splitlines() if line[:4] == "- **"]


def test_the_page_lists_what_passes_and_nothing_else() -> None:
    assert Counter(listed()) == Counter(set(listed()))
    assert set(listed()) == {attack.listed for attack in PASSING}


def test_there_are_as_many_as_there_should_be() -> None:
    assert len(FOUND) >= 70
    names = [attack.name for attack in ATTACKS]
    assert len(names) == len(set(names))
    assert {attack.world for attack in ATTACKS} == set(WORLDS)
