"""`fourmin run --tensorboard DIR`, read back with TensorBoard's own reader."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from actors import ActingLauncher
from typer.testing import CliRunner, Result

from fourmin.base.errors import FourminError
from fourmin.cli import main
from fourmin.cli.tensorboard import TensorBoard

TAGS = {
    "loss/train", "accuracy/validation", "learning_rate", "throughput/images_per_second",
    "communication/exposed_ms", "run/minutes",
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a short practice campaign with acting workers; its output."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("fourmin.campaign.prepare.load_launcher", lambda *_: ActingLauncher())

    def start(*arguments: str) -> Result:
        return CliRunner().invoke(
            main.app,
            ["run", "--practice", "--runs", "2", "--set", "device=cpu", "--quiet",
             "--procs-per-node", "2", "--results-dir", str(tmp_path / "results"), *arguments],
        )  # fmt: skip

    return start


def scalars(folder: Path) -> dict[str, list[Any]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: found.Scalars(tag) for tag in found.Tags()["scalars"]}


def test_every_run_has_the_scalars_of_its_log(run: Any, tmp_path: Path) -> None:
    done = run("--tensorboard", str(tmp_path / "tb"))
    assert done.exit_code == 0, done.output
    (campaign,) = (tmp_path / "results").iterdir()
    folders = sorted((tmp_path / "tb" / campaign.name).iterdir())
    assert [folder.name for folder in folders] == ["run-1", "run-2"]
    for folder in folders:
        found = scalars(folder)
        assert set(found) == TAGS
        lines = (campaign / folder.name / "events.log").read_text().splitlines()
        records = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
        stats = [r for r in records if r["key"] == "tracked_stats"]
        for tag, name in (
            ("loss/train", "train_loss"),
            ("throughput/images_per_second", "throughput"),
            ("learning_rate", "learning_rate"),
            ("communication/exposed_ms", "exposed_ms_median"),
        ):
            assert [e.value for e in found[tag]] == pytest.approx([s["value"][name] for s in stats])
            assert [e.step for e in found[tag]] == [s["value"]["optimizer_steps"] for s in stats]
            assert [e.wall_time for e in found[tag]] == [s["time_ms"] / 1000 for s in stats]
        accuracies = [r["value"] for r in records if r["key"] == "eval_accuracy"]
        assert [e.value for e in found["accuracy/validation"]] == pytest.approx(accuracies)
        result = json.loads((campaign / folder.name / "result.json").read_bytes())
        assert found["run/minutes"][0].value == pytest.approx(result["minutes"])


def test_without_the_package_nothing_is_registered(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    done = run("--tensorboard", str(tmp_path / "tb"))
    assert isinstance(done.exception, FourminError)
    assert done.exception.exit_code == 2
    assert "[tensorboard]'" in done.exception.next_step
    assert not (tmp_path / "results").exists()


def test_a_folder_that_cannot_be_written_is_refused(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("--tensorboard", str(tmp_path / "file" / "tb"))
    assert isinstance(done.exception, FourminError)
    assert "TensorBoard folder" in done.exception.what
    assert not (tmp_path / "results").exists()


def test_what_fails_later_ends_the_writing_and_not_the_campaign(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: TensorBoard, run: str) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(TensorBoard, "_begin", fail)
    done = run("--tensorboard", str(tmp_path / "tb"))
    assert done.exit_code == 0, done.output
    assert "practice, which never counts" in done.output
    assert done.output.count("no space left on device") == 1
