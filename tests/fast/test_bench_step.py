"""`fourmin bench step` on the CPU."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from output_kinds import require_kind
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.bench import timing
from fourmin.bench.step import Ceilings, PeerResult, StepOptions, StepReport, measure
from fourmin.cli.bench_command import app

SMALL = ["step", "--device", "cpu", "--preset", "digits", "--batch-size", "8", "--repeats", "3",
         "--warmup", "1", "--threads", "1", "--precision", "fp32"]  # fmt: skip


def test_json_holds_every_time_and_the_ceilings() -> None:
    result = CliRunner().invoke(
        app, [*SMALL, "--json", "--peers", "plain,eager", "--peers", "fast", "--batch-size", "16"]
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    require_kind(report, "bench-step")
    assert report["model"] == "resnet8"
    assert report["device"] == "cpu"
    assert report["ceilings"]["matrix_product_flops"] > 1e8
    assert report["ceilings"]["copy_bytes_per_second"] > 1e8
    rows = {(row["peer"], row["batch_size"]): row for row in report["results"]}
    assert set(rows) == {(p, b) for p in ("plain", "eager", "fast") for b in (8, 16)}
    for row in rows.values():
        assert len(row["seconds"]) == 3
        assert min(row["seconds"]) > 0
    assert "needs a CUDA GPU" in rows["fast", 8]["note"]


def test_only_the_deterministic_step_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def times(*arguments: Any) -> list[float]:
        seen.append(torch.are_deterministic_algorithms_enabled())
        return timing.times(*arguments)

    monkeypatch.setattr("fourmin.bench.step.times", times)
    peers = ["eager", "deterministic", "plain"]
    result = CliRunner().invoke(app, [*SMALL, "--json", "--peers", ",".join(peers)])
    assert result.exit_code == 0, result.output
    assert [row["peer"] for row in json.loads(result.stdout)["results"]] == peers
    assert seen == [False, True, False]
    assert not torch.are_deterministic_algorithms_enabled()


def test_text_says_what_was_measured_and_a_terminal_hears_of_each_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(
        "fourmin.bench.step.measure", lambda say, **options: measure(**options, say=said.append)
    )
    result = CliRunner().invoke(app, [*SMALL, "--peers", "eager"])
    assert result.exit_code == 0, result.output
    assert said == ["ceilings", "eager, batch 8"]
    assert "resnet8, fp32, 16x16, synthetic images on the cpu" in result.stdout
    assert "copy" in result.stdout
    assert "images/s" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["--peers", "slow"], "slow"), (["--preset", "no"], "no")],
)
def test_what_does_not_exist_is_named(arguments: list[str], word: str) -> None:
    result = CliRunner().invoke(app, [*SMALL, *arguments])
    assert isinstance(result.exception, FourminError)
    assert word in result.exception.what


def test_a_device_that_does_not_exist_is_wrong_usage() -> None:
    result = CliRunner().invoke(app, [*SMALL, "--device", "tpu"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "'--device': 'tpu' is not known" in result.output


def test_a_disturbed_measurement_is_not_reported() -> None:
    options = StepOptions("resnet8", "cpu", "fp32", (8,), 16, 10, ("plain", "fast"), 1, 3, 2)
    report = StepReport(options, "a machine", "torch", Ceilings(1e12, "fp32", 1024, 1e10), 1e9)
    report.results = [
        PeerResult("plain", 8, (0.1, 0.2, 0.3), busy_ratio=0.97),
        PeerResult("fast", 8, (0.1, 0.1, 0.1), busy_ratio=0.5),
    ]
    assert report.results[0].images_per_second == 40.0
    assert report.results[1].images_per_second is None
    text = report.to_text()
    assert "something else was running" in text
    # 40 images/s of 1 GFLOP are 4% of 1 TFLOP/s.
    assert "4.0%" in text
    assert "1.00x" in text
