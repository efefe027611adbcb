"""Honest work in every shape that it comes in: valid, and nothing unchecked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from attack import errors, validate
from attacks_in_git import _next as another
from attacks_in_git import _registered as registered
from campaign_factory import SYSTEM, make_campaign
from forger import LOGS, forge
from report_factory import gpu_system
from tamper import read_records, write_records
from worlds import commit, git, land, make_submissions, submit

ROOT = Path(__file__).parents[2]
GPUS = {"device": "cuda", "precision": "fp16"}


def is_valid(*arguments: object) -> None:
    code, said = validate(*arguments)
    assert (code, errors(said)) == (0, set()), said["findings"]
    assert {one["status"] for one in said["checked"]} == {"valid"}
    assert not any(one["unchecked"] for one in said["checked"])


def _system(**hardware: Any) -> dict[str, Any]:
    return SYSTEM | {"hardware": SYSTEM["hardware"] | hardware}


STORIES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "resumed once": {"restarts": [(2, 4)]},
    "resumed twice": {"restarts": [(2, 4), (2, 6)]},
    "resumed in every run": {"restarts": [(run, 6) for run in range(1, 6)]},
    "resumed before its first checkpoint": {"restarts": [(3, 0)]},
    "resumed on another machine": {"restarts": [(2, 4)], "another_boot": True},
    "three times faster": {"epoch_ms": 100.0},
    "ten times faster": {"epoch_ms": 30.0},
    "a hundred times slower": {"epoch_ms": 30_000.0},
    "an aborted run, dropped as the slowest": {"aborted": [2]},
    "a run that did not converge, dropped as the slowest": {"not_converged": [4]},
    "an attempt that never started": {"retried": [1]},
    "several attempts that never started": {"retried": [1, 1, 3, 5]},
    "under way": {"killed_in": 3},
    "all runs done and not closed": {"closed": False},
    "practice": {"practice": True, "runs": 2},
    "the page cache cleared": {"cache_cleared": True},
    "energy measured": {"joules": [90.0, 91.0, 92.0, 93.0, 94.0]},
    "another batch": {"configuration": {"global_batch_size": 32}},
    "on more cores": {"system": _system(processor=SYSTEM["hardware"]["processor"] | {"cpus": 64})},
    "one GPU": {"system": gpu_system(1), "configuration": GPUS | {"procs_per_node": 1}},
    "eight GPUs": {"system": gpu_system(8), "configuration": GPUS | {"procs_per_node": 8}},
    "two nodes": {"configuration": {"nodes": 2}},
    "two nodes of GPUs": {"system": gpu_system(2), "configuration": GPUS | {"nodes": 2}},
    "the open division": {"configuration": {"division": "open", "momentum": 0.7}},
    "ImageNet on GPUs": {
        "benchmark": "resnet50", "epochs": 36, "system": gpu_system(2), "configuration": GPUS,
    },
    "fractals on a GPU": {
        "benchmark": "fractals-resnet50", "epochs": 11, "system": gpu_system(1),
        "configuration": GPUS | {"procs_per_node": 1},
    },
}  # fmt: skip
"""Stories of the factory by what happened."""


@pytest.mark.parametrize("story", STORIES.values(), ids=list(STORIES))
def test_a_campaign(story: dict[str, Any], tmp_path: Path) -> None:
    is_valid(make_campaign(tmp_path, **story))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_campaign(tmp_path_factory.mktemp("honest"))


@pytest.fixture
def campaign(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / honest.name))


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/St_Johns", "Europe/Berlin"])
def test_another_time_zone(zone: str, campaign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        is_valid(campaign)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("milliseconds", [2000, -2000])
@pytest.mark.parametrize(
    "story",
    [
        "as it is",
        "resumed twice",
        "resumed on another machine",
        "several attempts that never started",
        "an aborted run, dropped as the slowest",
        "under way",
        "all runs done and not closed",
    ],
)
def test_the_logs_clock_two_seconds_off(story: str, milliseconds: int, tmp_path: Path) -> None:
    """An offset is no alarm: of ledger and log only the durations are held against each other."""
    folder = make_campaign(tmp_path, **STORIES[story])
    before = [json.loads(path.read_bytes())["minutes"] for path in folder.glob("run-*/result.json")]
    for path in folder.glob(LOGS):
        records = read_records(path)
        for one in records:
            one["time_ms"] += milliseconds
        write_records(path, records)
    forge(folder)
    is_valid(folder)
    after = [json.loads(path.read_bytes())["minutes"] for path in folder.glob("run-*/result.json")]
    assert after == before


def test_nodes_whose_clocks_are_a_minute_apart(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, configuration={"nodes": 4})
    for path in folder.glob(LOGS):
        records = read_records(path)
        for one in records:
            one["time_ms"] += 50_000
        write_records(path, records)
    forge(folder)
    is_valid(folder)


def test_a_folder_moved_and_renamed(campaign: Path) -> None:
    moved = campaign.parent / "kept for later" / "a b"
    moved.parent.mkdir()
    is_valid(campaign.rename(moved))


def test_a_path_that_is_not_plain(campaign: Path) -> None:
    target = campaign.parent / "Ergebnisse ü 結果" / campaign.name
    target.parent.mkdir()
    is_valid(campaign.rename(target))


def test_a_relative_path(campaign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(campaign)
    is_valid(".")


def test_a_link_that_the_reader_gives(campaign: Path) -> None:
    link = campaign.parent / "latest"
    link.symlink_to(campaign.name)
    is_valid(link)


def test_folders_that_cannot_be_written(campaign: Path) -> None:
    for path in (campaign, *campaign.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        is_valid(campaign)
    finally:
        for path in (campaign, *campaign.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_files_with_other_times_and_modes(campaign: Path) -> None:
    for path in campaign.rglob("*"):
        os.utime(path, (0, 0))
        path.chmod(0o777)
    is_valid(campaign)


def _command(python: str, *arguments: object, **environment: str) -> None:
    """`fourmin validate` by an interpreter, as a process of its own."""
    done = subprocess.run(
        [python, "-m", "fourmin", "validate", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0"},
        {"LC_ALL": "tr_TR.UTF-8"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"},
    ],
    ids=lambda environment: " ".join(environment.values()),
)
def test_another_locale(environment: dict[str, str], campaign: Path) -> None:
    _command(sys.executable, campaign, **environment)


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_another_python(version: str, campaign: Path) -> None:
    python = shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"there is no python{version} here; it is in the CI's matrix")
    packages = next(Path(sys.prefix).glob("lib/python*/site-packages"))
    probe = [python, "-c", "import typer, jsonschema, rfc8785"]
    environment = os.environ | {"PYTHONPATH": str(packages)}
    if subprocess.run(probe, env=environment, capture_output=True, check=False).returncode:
        pytest.skip(f"python{version} has none of the packages that fourmin needs")
    _command(python, campaign, PYTHONPATH=f"{ROOT}{os.pathsep}{packages}")


def test_submissions_with_a_page_for_all(tmp_path: Path) -> None:
    make_submissions(tmp_path / "submissions")
    is_valid(tmp_path / "submissions")


def test_results_beside_submissions(tmp_path: Path) -> None:
    """The campaign that was submitted lies where it was run, too."""
    folder = submit(tmp_path / "submissions", "lab", "box", 0)
    shutil.copytree(folder, tmp_path / "results" / folder.name)
    is_valid(tmp_path)
    is_valid(tmp_path / "results", tmp_path / "submissions")


def test_results_that_stopped_earlier_than_what_was_submitted(tmp_path: Path) -> None:
    folder = submit(tmp_path / "submissions", "lab", "box", 0)
    begun = Path(shutil.copytree(folder, tmp_path / "results" / folder.name))
    lines = (begun / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (begun / "ledger.jsonl").write_bytes(b"".join(lines[:5]))
    (begun / "summary.json").unlink()
    for run in range(2, 6):
        shutil.rmtree(begun / f"run-{run}")
    is_valid(tmp_path)


def test_submissions_under_another_name(tmp_path: Path) -> None:
    make_submissions(tmp_path / "mirror")
    is_valid(tmp_path / "mirror")


def test_what_desktops_leave(tmp_path: Path) -> None:
    make_submissions(tmp_path / "submissions")
    for name in (".DS_Store", "lab/Thumbs.db", "lab/box/digits/.nfs000000001"):
        (tmp_path / "submissions" / name).write_bytes(b"x")
    code, said = validate(tmp_path / "submissions")
    assert (code, errors(said)) == (0, set())


def test_a_change_not_committed_yet(root: Path) -> None:
    another(root)
    is_valid(root / "submissions", "--base", "main")


def test_a_change_of_one_commit(root: Path) -> None:
    another(root)
    commit(root)
    is_valid(root / "submissions", "--base", "main")


def test_a_registered_campaign(root: Path) -> None:
    registered(root)
    is_valid(root / "submissions", "--base", "main")
    commit(root)
    is_valid(root / "submissions", "--base", "main")


def test_a_base_that_moved_on(root: Path) -> None:
    another(root)
    commit(root)
    _elsewhere(root)
    is_valid(root / "submissions", "--base", "main")


def _elsewhere(root: Path) -> None:
    """Another commit on main, by the maintainers."""
    git(root, "checkout", "--quiet", "main")
    (root / "README.md").write_text("hello\n")
    commit(root)
    git(root, "checkout", "--quiet", "change")


def test_a_change_that_was_rebased(root: Path) -> None:
    another(root)
    commit(root)
    _elsewhere(root)
    git(root, "rebase", "--quiet", "main")
    is_valid(root / "submissions", "--base", "main")


def test_a_change_that_merged_the_base(root: Path) -> None:
    another(root)
    commit(root)
    _elsewhere(root)
    git(root, "merge", "--quiet", "--no-edit", "main")
    is_valid(root / "submissions", "--base", "main")


@pytest.mark.parametrize("how", [["--squash"], ["--no-ff", "--no-edit"], ["--ff-only"]])
def test_a_change_that_was_merged(root: Path, how: list[str]) -> None:
    before = git(root, "rev-parse", "main")
    another(root)
    commit(root)
    git(root, "checkout", "--quiet", "main")
    git(root, "merge", "--quiet", *how, "change")
    if how == ["--squash"]:
        commit(root)
    is_valid(root / "submissions")
    is_valid(root / "submissions", "--base", before)


def test_a_registration_that_was_squashed(root: Path) -> None:
    """The plan lands by a commit that is not the submitter's."""
    registered(root)
    commit(root)
    git(root, "checkout", "--quiet", "main")
    git(root, "merge", "--quiet", "--squash", "change")
    commit(root)
    is_valid(root / "submissions", "--base", "main")


def _clone(root: Path, *options: str) -> Path:
    target = root.parent / "clone"
    git(root.parent, "clone", "--quiet", *options, f"file://{root}", str(target))
    return target


def test_a_shallow_clone(root: Path) -> None:
    another(root)
    land(root)
    is_valid(_clone(root, "--depth", "1") / "submissions")


def test_a_whole_clone(root: Path) -> None:
    registered(root)
    land(root)
    clone = _clone(root)
    is_valid(clone / "submissions", "--base", "origin/main")


def test_a_second_worktree(root: Path) -> None:
    another(root)
    commit(root)
    git(root, "worktree", "add", "--quiet", "--detach", str(root.parent / "beside"))
    is_valid(root.parent / "beside/submissions", "--base", "main")


def test_a_checkout_with_the_line_ends_of_windows(root: Path) -> None:
    """With the .gitattributes of this repository every byte is as it was."""
    shutil.copyfile(ROOT / ".gitattributes", root / ".gitattributes")
    land(root)
    clone = _clone(root, "--config", "core.autocrlf=true")
    is_valid(clone / "submissions")


def test_such_a_checkout_without_attributes_is_one_finding(root: Path) -> None:
    clone = _clone(root, "--config", "core.autocrlf=true")
    submissions = clone / "submissions"
    for name in ("lab", "README.md"):
        path = submissions / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    code, said = validate(submissions)
    wrong = [f for f in said["findings"] if f["severity"] != "note"]
    assert (code, len(wrong)) == (1, 1), [f["code"] for f in wrong]
    assert "CRLF" in wrong[0]["message"]
