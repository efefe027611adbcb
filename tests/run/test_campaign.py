"""A whole campaign on this machine, as a user starts it."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from finished_runs import FinishedRun
from processes import PRACTICE, SHORT, fourmin

from fourmin.cli.main import main

HALF = [*PRACTICE, "--max-steps", "24", "--runs", "1", "--json", "--set", "gradient_dtype=bf16",
        "--set", "decoded_cache=2"]  # fmt: skip


@pytest.fixture
def twice(finished_run: Callable[..., FinishedRun]) -> FinishedRun:
    """Two short runs that differ in their seed alone."""
    return finished_run(*SHORT)


@pytest.fixture
def half(finished_run: Callable[..., FinishedRun]) -> FinishedRun:
    """One short run with gradients in half precision and cached images, which tells in JSON."""
    return finished_run(*HALF)


def test_it_ends_well_and_says_where_everything_is(twice: FinishedRun) -> None:
    assert str(twice.campaign) in twice.process.stdout
    assert "practice, which never counts" in twice.process.stdout
    assert "checked: valid" in twice.process.stdout
    assert "run 2/2  epoch 2  accuracy" in twice.process.stderr
    root = twice.results
    assert fourmin("validate", str(root), state=root.parent).returncode == 0


def test_runs_have_assigned_seeds_and_everything_follows_from_them(twice: FinishedRun) -> None:
    first, second = twice.run_results()
    assert first["seed"] != second["seed"]
    for name in ("initial_weights_digest", "data_order_digest", "first_losses"):
        assert first[name] != second[name]
    for name in ("configuration", "package_digest", "dataset", "campaign"):
        assert first[name] == second[name]
    assert first["configuration"]["max_steps"] == 24
    # Measured where this machine has a meter that may be read, never guessed.
    assert first["energy"] is None or first["energy"]["joules"] > 0


def test_a_trace_is_left_where_one_is_asked_for(
    twice: FinishedRun, finished_run: Callable[..., FinishedRun]
) -> None:
    made = finished_run(*PRACTICE, "--runs", "1", "--max-steps", "7", "--profile", "2")
    trace = made.campaign / "run-1" / "trace.json.gz"
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    marks = [one["name"] for one in events if one.get("cat") == "user_annotation"]
    assert [name for name in marks if name.startswith("step ")] == ["step 4", "step 5"]
    assert any("conv" in one["name"] for one in events)
    assert f"2 of 2 steps traced: {trace}; open in Perfetto" in made.process.stderr
    for command in ("validate", "report"):
        read = fourmin(command, str(made.results), state=made.results.parent)
        assert (read.returncode, "trace" in read.stdout + read.stderr) == (0, False), read.stdout
    assert not list(twice.results.rglob("trace*"))


def test_the_last_line_of_json_is_the_result(half: FinishedRun) -> None:
    lines = [json.loads(line) for line in half.process.stdout.splitlines()]
    assert lines[-1]["event"] == "campaign-closed"
    assert lines[-1]["minutes"] == lines[-1]["summary"]["minutes"]
    assert lines[-1]["valid"] is True
    assert Path(lines[-1]["campaign"], "summary.json").is_file()
    assert {"run_start", "eval_accuracy", "run_stop"} <= {e.get("key") for e in lines}


def test_half_precision_gradients_send_half_the_bytes_and_images_may_be_cached(
    twice: FinishedRun, half: FinishedRun
) -> None:
    (halves,) = half.run_results()
    full = twice.run_results()[0]
    assert halves["configuration"]["gradient_dtype"] == "bf16"
    assert halves["configuration"]["decoded_cache"] == 2
    sizes = halves["communication"]["bucket_bytes"]
    assert [2 * size for size in sizes] == full["communication"]["bucket_bytes"]
    assert halves["status"] == full["status"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "nosuch"], "no preset 'nosuch'"),
        (["--set", "learning=1"], "unknown --set key 'learning'"),
        (["--runs", "3"], "--runs needs --practice"),
        (["--max-steps", "3"], "--max-steps needs --practice"),
        (["--seed", "3"], "--seed needs --practice"),
        (["--profile", "3"], "--profile needs --practice"),
        (["--procs-per-node", "3"], "cannot be shared equally by 3 workers"),
        (["--set", "momentum=0.1"], "the closed division does not allow"),
        (["--set", "division=open", "--set", "model=resnet20"], "resnet20 is not a model of"),
        (["--set", "threads=1", "--set", "threads=2"], "given twice"),
        (["--precision", "fp16", "--set", "device=cpu"], "fp16 needs a GPU"),
        (["--resume", "nowhere"], "no campaign in nowhere"),
        (["--set", "step=fast", "--set", "device=cpu"], "step=fast cannot train this"),
        (["--set", "gradient_dtype=fp16", "--set", "device=cpu"], "need loss scaling"),
        (["--data-dir", "nowhere"], "no folder nowhere"),
    ],
)
def test_wrong_usage_is_one_clear_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    """In this process: it ends before anything has begun."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    results = ["--results-dir", str(tmp_path / "r")]
    monkeypatch.setattr(sys, "argv", ["fourmin", "run", *arguments, *results])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.startswith("error: ")
    assert "Traceback" not in errors
    assert len(errors.splitlines()) < 24
    assert not list((tmp_path / "r").glob("*")) if (tmp_path / "r").exists() else True


def test_an_unwritable_results_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process = fourmin("run", "--results-dir", str(tmp_path / "file" / "r"), state=tmp_path)
    assert process.returncode == 2
    assert "cannot write to the results folder" in process.stderr


def test_a_dry_run_says_everything_and_does_nothing(tmp_path: Path) -> None:
    process = fourmin("run", "--dry-run", "--results-dir", str(tmp_path / "r"), state=tmp_path)
    assert process.returncode == 0, process.stderr
    for text in (
        "global_batch_size = 64",
        "steps_per_epoch = 22",
        "training.agent --standalone",
    ):
        assert text in process.stdout
    assert not (tmp_path / "r").exists()
    as_json = json.loads(fourmin("run", "--dry-run", "--json", state=tmp_path).stdout)
    assert as_json["batch"]["images_dropped_per_epoch"] == 1437 - 22 * 64
    assert as_json["runs"] == 5
