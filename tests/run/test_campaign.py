"""A whole campaign on this machine, as a user starts it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from processes import PRACTICE, fourmin

STEPS = ["--max-steps", "24", *PRACTICE]


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess]:
    """Two short runs with different all-reduces, same everything else."""
    root = tmp_path_factory.mktemp("campaign")
    process = fourmin("run", *STEPS, "--runs", "2", "--results-dir", str(root), state=root)
    return root, process


def results(root: Path) -> list[dict]:
    return [json.loads(p.read_bytes()) for p in sorted(root.glob("*/run-*/result.json"))]


def test_it_ends_well_and_says_where_everything_is(
    twice: tuple[Path, subprocess.CompletedProcess],
) -> None:
    root, process = twice
    assert process.returncode == 0, process.stderr
    (campaign,) = [path for path in root.iterdir() if (path / "campaign.json").exists()]
    assert str(campaign) in process.stdout
    assert "practice, which never counts" in process.stdout
    assert "checked: valid" in process.stdout
    assert "run 2/2  epoch 2  accuracy" in process.stderr
    assert fourmin("validate", str(root), state=root).returncode == 0


def test_runs_have_assigned_seeds_and_everything_follows_from_them(
    twice: tuple[Path, subprocess.CompletedProcess],
) -> None:
    first, second = results(twice[0])
    assert first["seed"] != second["seed"]
    for name in ("initial_weights_digest", "data_order_digest", "first_losses"):
        assert first[name] != second[name]
    for name in ("configuration", "package_digest", "dataset", "campaign"):
        assert first[name] == second[name]
    assert first["configuration"]["max_steps"] == 24
    # Measured where this machine has a meter that may be read, never guessed.
    assert first["energy"] is None or first["energy"]["joules"] > 0


def test_the_last_line_of_json_is_the_result(tmp_path: Path) -> None:
    process = fourmin(
        "run", *STEPS, "--runs", "1", "--json", "--results-dir", str(tmp_path), state=tmp_path
    )
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    assert lines[-1]["event"] == "campaign-closed"
    assert lines[-1]["minutes"] == lines[-1]["summary"]["minutes"]
    assert lines[-1]["valid"] is True
    assert Path(lines[-1]["campaign"], "summary.json").is_file()
    assert {"run_start", "eval_accuracy", "run_stop"} <= {e.get("key") for e in lines}


def test_half_precision_gradients_send_half_the_bytes_and_images_may_be_cached(
    twice: tuple[Path, subprocess.CompletedProcess], tmp_path: Path
) -> None:
    process = fourmin(
        "run", *STEPS, "--runs", "1", "--set", "gradient_dtype=bf16",
        "--set", "decoded_cache=2", "--results-dir", str(tmp_path), state=tmp_path,
    )  # fmt: skip
    assert "checked: valid" in process.stdout, process.stderr
    (half,) = results(tmp_path)
    full = results(twice[0])[0]
    assert half["configuration"]["gradient_dtype"] == "bf16"
    assert half["configuration"]["decoded_cache"] == 2
    sizes = half["communication"]["bucket_bytes"]
    assert [2 * size for size in sizes] == full["communication"]["bucket_bytes"]
    assert half["status"] == full["status"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "nosuch"], "no preset 'nosuch'"),
        (["--set", "learning=1"], "unknown --set key 'learning'"),
        (["--runs", "3"], "--runs needs --practice"),
        (["--max-steps", "3"], "--max-steps needs --practice"),
        (["--seed", "3"], "--seed needs --practice"),
        (["--procs-per-node", "3"], "cannot be shared equally by 3 workers"),
        (["--set", "momentum=0.1"], "the closed division does not allow"),
        (["--set", "threads=1", "--set", "threads=2"], "given twice"),
        (["--precision", "fp16", "--set", "device=cpu"], "fp16 needs a GPU"),
        (["--resume", "nowhere"], "no campaign in nowhere"),
        (["--set", "step=fast", "--set", "device=cpu"], "the fast step is for fp16"),
        (["--set", "gradient_dtype=fp16", "--set", "device=cpu"], "need loss scaling"),
        (["--launcher", "ssh"], "no launcher 'ssh'"),
        (["--data-dir", "nowhere"], "no folder nowhere"),
    ],
)
def test_wrong_usage_is_one_clear_message(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    process = fourmin("run", *arguments, "--results-dir", str(tmp_path / "r"), state=tmp_path)
    assert process.returncode == 2
    assert message in process.stderr
    assert process.stderr.startswith("error: ")
    assert "Traceback" not in process.stderr
    assert len(process.stderr.splitlines()) < 24
    assert not list((tmp_path / "r").glob("*")) if (tmp_path / "r").exists() else True


def test_an_unwritable_results_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process = fourmin("run", "--results-dir", str(tmp_path / "file" / "r"), state=tmp_path)
    assert process.returncode == 2
    assert "cannot write to the results folder" in process.stderr


def test_a_dry_run_says_everything_and_does_nothing(tmp_path: Path) -> None:
    process = fourmin("run", "--dry-run", "--results-dir", str(tmp_path / "r"), state=tmp_path)
    assert process.returncode == 0, process.stderr
    for text in ("global_batch_size = 64", "steps_per_epoch = 22", "torch.distributed.run"):
        assert text in process.stdout
    assert not (tmp_path / "r").exists()
    as_json = json.loads(fourmin("run", "--dry-run", "--json", state=tmp_path).stdout)
    assert as_json["batch"]["images_dropped_per_epoch"] == 1437 - 22 * 64
    assert as_json["runs"] == 5
