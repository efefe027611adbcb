"""What `run` would refuse is refused by `run --dry-run`, and before anything is sent anywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign
from images import make_tree
from processes import environment, fourmin

from fourmin.base.errors import FourminError
from fourmin.campaign.describe import batch_arithmetic, plan_json
from fourmin.campaign.naming import names
from fourmin.campaign.prepare import prepare
from fourmin.campaign.request import Existing, New, Placement, Request
from fourmin.campaign.requirements import get_data
from fourmin.datasets.check import check_tree
from fourmin.ruleset import load_ruleset


def refused(request: Request, placement: Placement | None = None) -> list[str]:
    return [error.what for error in prepare(New(request), placement).refused]


@pytest.mark.parametrize("name", ["a/b", "../b", "two words", "CON", "trailing.", ".hidden", "é"])
def test_names_that_name_no_folder_are_refused_before_a_campaign_that_counts(
    name: str, tmp_path: Path
) -> None:
    for given in ({"submitter": name}, {"system_name": name}):
        option = "--submitter" if "submitter" in given else "--system"
        told = f"{option} {name!r} cannot name a folder"
        assert told in refused(Request(results_dir=tmp_path, **given))
        assert told not in refused(Request(results_dir=tmp_path, practice=True, **given))


@pytest.mark.parametrize(
    ("nodes", "model", "expected"),
    [(1, "Quadro RTX 6000/8000", "8xQuadro-RTX-6000-8000"), (2, "A (x).", "2x8xA-x")],
)
def test_the_default_name_of_a_system_can_name_a_folder(
    nodes: int, model: str, expected: str
) -> None:
    hardware = {"accelerators": [{"model": model, "count": 8}]}
    assert names(Request(), nodes, {"hardware": hardware}) == ("self", expected)
    assert names(Request(), nodes, None) == ("self", "")


def tree_in(folder: Path) -> Path:
    """32 images to train on, and their manifest."""
    tree = make_tree(folder / "tree")
    assert check_tree(tree, workers=1).ok
    return tree


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["run", "dry-run"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--runs", "0"], "at least one run"),
        (["--data-dir", "nosuch"], "no folder nosuch"),
        (["--preset", "tiny-imagenet"], "no --data-dir was given"),
        (["--nodes", "4", "--launcher", "local"], "reaches other nodes"),
        (["--set", "global_batch_size=63", "--procs-per-node", "2"], "by 2 workers"),
        (["--set", "global_batch_size=4096", "--procs-per-node", "2"], "larger than the 1437"),
        (["--partition", "gpu", "--launcher", "local"], "has no use for --partition"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_run_and_dry_run_refuse_the_same(
    tmp_path: Path, options: list[str], told: str, dry: list[str]
) -> None:
    results = tmp_path / "results"
    done = fourmin("run", "--practice", *options, *dry, "--results-dir", str(results),
                   state=tmp_path)  # fmt: skip
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not results.exists()


def test_the_whole_plan_is_shown_before_what_is_refused(tmp_path: Path) -> None:
    options = ["--preset", "resnet50-8k", "--data-dir", "nosuch", "--results-dir", str(tmp_path)]
    done = fourmin("run", "--practice", "--dry-run", *options, state=tmp_path)
    assert done.returncode == 2
    assert "global_batch_size = 8192" in done.stdout
    assert "each run starts" in done.stdout
    as_json = fourmin("run", "--practice", "--dry-run", "--json", *options, state=tmp_path)
    assert as_json.returncode == 2
    told = json.loads(as_json.stdout)["refused"]
    assert told[0] == {
        "what": "no folder nosuch", "why": "", "next_step": "name the data with --data-dir",
    }  # fmt: skip
    assert all(one["what"] in as_json.stderr for one in told)


SBATCH = "#!/bin/sh\necho called >> {log}\nexit 1\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--data-dir", "nosuch"], "no folder nosuch"),
        (["--preset", "resnet50-256"], "no --data-dir was given"),
        (["--directive", "not an option"], "is no option of sbatch"),
        (["--set", "device=cpu", "--set", "step=fast"], "step=fast cannot train this"),
    ],
    ids=["no-folder", "no-data", "directive", "fast-on-the-cpu"],
)  # fmt: skip
def test_sbatch_is_not_called_for_what_can_be_refused(
    tmp_path: Path, options: list[str], told: str
) -> None:
    log, program = tmp_path / "log", tmp_path / "sbatch"
    program.write_text(SBATCH.format(log=log))
    program.chmod(0o755)
    variables = environment(tmp_path) | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "fourmin", "run", "--practice", "--launcher", "slurm"]
    done = subprocess.run(
        [*command, *options], env=variables, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert not log.exists()
    assert not (tmp_path / "results").exists()
    # It would be: the stub refuses what reaches it.
    called = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True)
    assert "Slurm did not take the job" in called.stderr
    assert log.exists()


def test_a_trainjob_is_not_written_for_what_can_be_refused(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('[kubernetes]\nimage = "i"\nclaim = "c"\n')
    command = [sys.executable, "-m", "fourmin", "run", "--launcher", "kubernetes", "--practice",
               "--site", "site.toml", "--preset", "tiny-imagenet"]  # fmt: skip
    for options, code in (([], 2), (["--data-dir", "in/the/pod"], 0)):
        done = subprocess.run(
            [*command, *options], env=environment(tmp_path), cwd=tmp_path, capture_output=True,
            text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert len(list(tmp_path.glob("fourmin-*.json"))) == (code == 0)


def test_a_program_that_submits_must_be_there(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(Request(results_dir=tmp_path), Placement(launcher="slurm")) == [
        "sbatch is not on PATH"
    ]


def test_arithmetic_is_that_of_the_data_at_hand(tmp_path: Path) -> None:
    benchmark = load_ruleset().benchmark("digits")
    data = get_data(benchmark, None)
    assert len(data.manifest.split("train")) == 1437
    tree = tree_in(tmp_path)
    samples = len(get_data(benchmark, tree).manifest.split("train"))
    request = Request(practice=True, settings=("global_batch_size=4", "device=cpu"),
                      results_dir=tmp_path)  # fmt: skip
    prepared = prepare(New(request), Placement(data_dir=tree))
    told = batch_arithmetic(prepared)
    assert told["steps_per_epoch"] == samples // 4
    assert told["images_dropped_per_epoch"] == samples % 4
    assert not prepared.refused
    counted = prepare(New(Request(results_dir=tmp_path)), Placement(data_dir=tree))
    assert "is not the dataset of benchmark digits" in counted.refused[0].what


def test_an_existing_campaign_is_described_by_its_plan(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, killed_in=2)
    prepared = prepare(Existing(folder))
    told = plan_json(prepared)
    plan = json.loads((folder / "campaign.json").read_bytes())
    assert told["runs"] == plan["runs"]
    assert told["configuration"] == plan["configuration"]
    # It was registered elsewhere.
    assert "cannot go on here" in prepared.refused[0].what
    assert "system_digest" in prepared.refused[0].why


def test_a_campaign_that_has_ended_is_refused_with_and_without_dry_run(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path)
    for dry in ([], ["--dry-run"]):
        done = fourmin("run", "--resume", str(folder), *dry, state=tmp_path)
        assert done.returncode == 2
        assert "has ended" in done.stderr


def test_a_results_folder_that_cannot_be_made_is_refused_and_nothing_is_made(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    assert (
        "cannot write to the results folder"
        in refused(Request(results_dir=tmp_path / "file" / "results"))[0]
    )
    assert refused(Request(results_dir=tmp_path / "a" / "b")) == []
    assert not (tmp_path / "a").exists()


def test_a_staging_folder_without_room_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    tree = tree_in(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1))
    stage = tmp_path / "stage"
    request = Request(practice=True, settings=("global_batch_size=4",), results_dir=tmp_path)
    placement = Placement(data_dir=tree, stage=stage)
    assert refused(request, placement) == [f"there is no room for the dataset in {stage}"]
    assert not stage.exists()


def test_states_without_room_are_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1))
    kept = tmp_path / "states"
    request = Request(practice=True, settings=("deterministic=true",), results_dir=tmp_path)
    placement = Placement(keep_states=kept)
    assert refused(request, placement) == [f"there is no room for the states in {kept}"]
    assert not kept.exists()


def test_a_reader_of_a_dry_run_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m fourmin run --dry-run | head -1; "
         'test "${PIPESTATUS[0]}" -ne 1'],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith("preset digits")
    assert done.stderr == ""


def test_a_launcher_that_cannot_be_had_is_one_more_thing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n1")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    for tool in ("srun", "scontrol"):
        (tmp_path / tool).write_text("#!/bin/sh\necho n1\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    request = Request(practice=True, options={"nodes": 2}, results_dir=tmp_path / "results")
    prepared = prepare(New(request), Placement(data_dir=tmp_path / "nosuch"))
    with pytest.raises(FourminError) as caught:
        prepared.require()
    assert "the run needs 2 nodes, the allocation has 1" in caught.value.why
    assert "no folder" in caught.value.why
