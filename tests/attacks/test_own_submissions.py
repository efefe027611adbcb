"""Attacks on the repository's own submissions: what was measured, not what the factory wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from attack import errors, validate
from forger import LOGS, campaigns_below, forge, scale
from worlds import copy_tree

SUBMISSIONS = Path(__file__).parents[2] / "submissions"
PLACES = [path.relative_to(SUBMISSIONS).as_posix() for path in campaigns_below(SUBMISSIONS)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    copy_tree(SUBMISSIONS, tmp_path / "submissions")
    return tmp_path / "submissions"


def test_they_are_valid(root: Path) -> None:
    code, said = validate(root)
    assert (code, errors(said)) == (0, set()), said["findings"]
    assert {one["status"] for one in said["checked"]} == {"valid"}


def _first(root: Path) -> Path:
    return root / PLACES[0]


def _submitter(root: Path) -> Path:
    return root / PLACES[0].split("/")[0]


def _renamed(root: Path) -> None:
    _submitter(root).rename(root / "somebody")


def _undescribed(root: Path) -> None:
    (_first(root).parents[1] / "system.json").unlink()


def _in_another_system(root: Path) -> None:
    target = _submitter(root) / "another" / _first(root).parent.name
    shutil.copytree(_first(root), target / _first(root).name)
    shutil.copyfile(_first(root).parents[1] / "system.json", target.parent / "system.json")


def _with_another_submitter(root: Path) -> None:
    target = root / "another" / Path(*_first(root).relative_to(_submitter(root)).parts)
    shutil.copytree(_first(root), target)
    shutil.copyfile(_first(root).parents[1] / "system.json", target.parents[1] / "system.json")


def _by_case(root: Path) -> None:
    shutil.copytree(_submitter(root), root / _submitter(root).name.upper())


def _with_a_page(root: Path) -> None:
    (_first(root).parent / "index.html").write_text("<p>")


def _with_a_hidden_folder(root: Path) -> None:
    (_submitter(root) / ".git").mkdir()
    (_submitter(root) / ".git" / "config").write_text("x")


def _after_the_end(root: Path) -> None:
    with (_first(root) / "ledger.jsonl").open("ab") as file:
        file.write((b"x" * 79 + b"\n") * 250_000)


@pytest.mark.parametrize(
    "act",
    [_renamed, _undescribed, _in_another_system, _with_another_submitter, _by_case, _with_a_page,
     _with_a_hidden_folder, _after_the_end],
    ids=lambda act: act.__name__.strip("_").replace("_", " "),
)  # fmt: skip
def test_an_attack_is_found(act: Callable[[Path], None], root: Path) -> None:
    act(root)
    code, said = validate(root)
    assert code == 1
    assert errors(said)
    if act in (_in_another_system, _with_another_submitter):
        (own,) = (one for one in said["checked"] if one["path"] == str(_first(root)))
        assert own["status"] == "valid"


@pytest.mark.parametrize("place", PLACES)
def test_a_thousandth_of_its_time_is_beyond_the_hardware(place: str, root: Path) -> None:
    scale(root / place, 0.001)
    forge(root)
    code, said = validate(root)
    assert code == 1
    assert "PHY001" in errors(said)


@pytest.mark.parametrize("place", PLACES)
def test_half_of_its_time_in_the_logs_alone(place: str, root: Path) -> None:
    scale(root / place, 0.5, logs=[LOGS], ledger=False)
    forge(root)
    code, said = validate(root)
    assert (code, "CLK007" in errors(said)) == (1, True)


@pytest.mark.parametrize("place", PLACES)
def test_half_of_its_time_everywhere_passes(place: str, root: Path) -> None:
    """As docs/security.md says."""
    scale(root / place, 0.5)
    forge(root)
    code, said = validate(root)
    assert (code, errors(said)) == (0, set())
