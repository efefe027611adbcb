"""`fourmin bench allreduce`: options, arithmetic, chart, and a small measurement."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from output_kinds import require_kind
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.base.values import parse_size
from fourmin.bench.allreduce import (
    Options,
    format_size,
    measure,
    sizes,
    table_lines,
    with_bandwidths,
)
from fourmin.bench.nccl_tests import figure, nccl_tests_lines
from fourmin.cli.bench_command import app
from fourmin.recipe.allreduces import NAMES
from fourmin.recipe.tuning import load_tuning
from fourmin.report.charts.lines import HEIGHT, WIDTH, log_chart

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("65536", 65536), ("1KiB", 1024), ("64 MiB", 64 << 20), ("1gib", 1 << 30), ("7B", 7)],
)
def test_sizes_are_read(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "1.5MiB", "-4", "1TB", "MiB", "1 KiB x"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(FourminError, match="makes no sense"):
        parse_size(text)


@given(st.integers(0, 1 << 40))
def test_a_size_that_is_written_is_read_back(nbytes: int) -> None:
    assert parse_size(format_size(nbytes)) == nbytes


def test_sizes_go_from_1_kib_to_the_largest() -> None:
    assert sizes(1 << 30, 4)[0] == 1024
    assert sizes(1 << 30, 4)[-1] == 1 << 30
    assert sizes(5000, 2) == (1024, 2048, 4096)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(workers=1, device="cpu"), "nobody to sum with"),
        (Options(workers=2, device="tpu"), "--device tpu"),
        (Options(workers=2, device="cpu", group_size=3), "group size 3 does not fit 2"),
        (Options(workers=2, device="cpu", max_size=1000), "below the smallest size"),
        (Options(workers=2, device="cpu", factor=1), "does not grow"),
        (Options(workers=2, device="cpu", dtype="int8"), "--dtype int8"),
        (Options(workers=2, device="cpu", iterations=0), "--iterations 0"),
        (Options(workers=2, device="cpu", max_size=1 << 44), "needs about"),
        (Options(workers=99, device="cuda"), "99 workers on GPUs"),
    ],
)
def test_what_cannot_work_is_refused_before_workers_start(options: Options, message: str) -> None:
    with pytest.raises(FourminError, match=message):
        measure(options)


def found(workers: int = 4) -> dict[str, Any]:
    rows = [
        {
            "bytes": size,
            "algorithm": name,
            "milliseconds": time,
            "least": time,
            "most": time,
            "samples": 3,
            "calls_per_sample": 1,
        }
        for size, name, time in [
            (1000_000, "ring", 2.0),
            (1000_000, "torus", 1.0),
            (4 << 20, "ring", 4.0),
            (4 << 20, "torus", 5.0),
        ]
    ]
    return {
        "workers": workers,
        "workers_per_node": workers,
        "group_size": 0,
        "device": "cpu",
        "backend": "gloo",
        "dtype": "float32",
        "tuning": ["0:torus", "2000000:ring"],
        "hybrid_large": "torus",
        "hybrid_thresholds": {"torus": 0},
        "rows": rows,
    }


def test_bandwidths_are_those_of_nccl_tests() -> None:
    document = with_bandwidths(found(workers=4))
    require_kind(document, "bench-allreduce")
    row = document["rows"][0]
    # 1 MB in 2 ms is 0.5 GB/s; with 4 ranks each must send and receive 2 * 3/4 of it.
    assert row["algorithm_bandwidth"] == pytest.approx(0.5)
    assert row["bus_bandwidth"] == pytest.approx(0.75)
    assert with_bandwidths(found(workers=2))["rows"][0]["bus_bandwidth"] == pytest.approx(0.5)


def test_the_table_stars_the_fastest_of_each_size() -> None:
    text = "\n".join(table_lines(with_bandwidths(found())))
    assert text.count("*") == 2
    assert "torus*" in text
    assert "ring*" in text
    assert "4 MiB" in text
    assert "0:torus, 2000000:ring" in text


def test_the_chart_is_svg_with_a_line_for_each_algorithm_inside_its_frame() -> None:
    svg = log_chart(
        "a < b", "size", "GB/s", {"ring": [(1024, 0.01), (4096, 0.5)], "x&y": [(1024, 3.0)]},
        {1024: "1 KiB", 4096: "4 KiB"},
    )  # fmt: skip
    root = ElementTree.fromstring(svg)
    assert len(root.findall(f"{SVG}polyline")) == 2
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"a < b", "x&y", "1 KiB", "0.01", "10"} <= set(texts)
    circles = root.findall(f"{SVG}circle")
    assert len(circles) == 3
    for circle in circles:
        assert 0 < float(circle.get("cx", "")) < WIDTH
        assert 0 < float(circle.get("cy", "")) < HEIGHT
    # More bandwidth is higher up.
    assert float(circles[0].get("cy", "")) > float(circles[1].get("cy", ""))


@pytest.mark.parametrize("lines", [{"ring": [(0.0, 1.0)]}, {"ring": [(1.0, -1.0)]}])
def test_a_chart_without_positive_points_is_refused(lines: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="positive"):
        log_chart("t", "x", "y", lines, {})


@pytest.mark.slow
def test_a_small_measurement_from_the_command_line(tmp_path: Path) -> None:
    output = tmp_path / "out" / "tuning.json"
    done = CliRunner().invoke(
        app,
        ["allreduce", "--device", "cpu", "--procs", "2", "--max-size", "64KiB", "--factor", "8",
         "--iterations", "3", "--seconds", "1", "--output", str(output), "--json"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    result = json.loads(output.read_text())
    assert json.loads(done.stdout) == result
    assert {row["bytes"] for row in result["rows"]} == {1024, 8192, 65536}
    for size in (1024, 8192, 65536):
        rows = [row for row in result["rows"] if row["bytes"] == size]
        assert sorted(row["algorithm"] for row in rows) == sorted(NAMES)
        assert all(row["milliseconds"] > 0 and row["correct"] for row in rows)
    assert load_tuning(output).workers == 2
    root = ElementTree.fromstring(output.with_suffix(".svg").read_text())
    assert len(root.findall(f"{SVG}polyline")) == len(NAMES)


# A row of all_reduce_perf's own output, of 16 H100 (another version's has fewer decimals).
THEIRS = (
    "   536870912     134217728     float     sum      -1   3817.5  140.63  263.69      0"
    "   3828.0  140.25  262.97      0"
)


def superbench(text: str) -> list[tuple[int, float, float]]:
    """Size, in-place time and bus bandwidth as SuperBench takes them from such output: by the
    place of a heading from the end, between two lines that it knows.
    """
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if "out-of-place" in line and "size" not in line
                 and "copy" not in line)  # fmt: skip
    last = next(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    found, places = [], None
    for line in lines[first + 1 : last]:
        cells = line.removeprefix("#").split()
        if "time" in line and "busbw" in line:
            places = (
                cells.index("size"),
                *(-1 - cells[::-1].index(name) for name in ("time", "busbw")),
            )
        elif not line.startswith("#"):
            assert places is not None
            size, time, bus = (cells[place] for place in places)
            found.append((int(size), float(time), float(bus)))
    return found


def alone(samples: int) -> dict[str, Any]:
    """One algorithm at 8 bytes and at 512 MiB, in and out of place."""
    shared = {"samples": samples, "calls_per_sample": 2, "least": 1.0, "most": 2.0}
    tail = {"p99": 2.5, "cv": 0.125} if samples >= 100 else {"p99": None, "cv": None}
    rows = [
        {"bytes": size, "algorithm": name, "milliseconds": time, **shared, **tail}
        for size, inside, outside in [(8, 0.0125, 0.0135), (1 << 29, 3.828, 3.8175)]
        for name, time in (("native", inside), ("out-of-place", outside))
    ]
    return {**found(16), "torch": "2.14.1", "rows": rows}


def test_the_columns_are_those_of_nccl_tests() -> None:
    result = with_bandwidths(alone(20))
    text = "\n".join(nccl_tests_lines(result))
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    for ours, theirs in zip(rows[1].split(), THEIRS.split(), strict=True):
        assert ours == theirs or float(ours) == float(theirs)
    first = "8 2 float sum -1 13.50 0.00 0.00 0 12.50 0.00 0.00 0"
    assert " ".join(rows[0].split()) == first
    assert all(len(row) == 12 + 14 + 10 + 8 + 8 + 2 * (9 + 8 + 8 + 8) for row in rows)
    assert superbench(text) == [(8, 12.5, 0.0), (1 << 29, 3828.0, 262.97)]
    average = next(line for line in text.splitlines() if "Avg bus bandwidth" in line)
    bus = [row["bus_bandwidth"] for row in result["rows"]]
    assert float(average.split()[-1]) == pytest.approx(sum(bus) / 4, rel=1e-5)
    assert "i_p99" not in text
    tails = "\n".join(nccl_tests_lines(with_bandwidths(alone(100))))
    assert "# 8 B, native, single calls: i_p99 2500.00 us, i_cv% 12.50" in tails


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [(0.0, 6, "  0.00"), (9.994, 7, "   9.99"), (1164.788, 7, "1164.79"), (12646.4, 7, "12646.4"),
     (123456.7, 7, " 123457"), (12345678.0, 7, "1.2e+07"), (338.824, 6, "338.82"),
     (1338.82, 6, "1338.8")],
)  # fmt: skip
def test_figures_are_as_wide_as_theirs(value: float, width: int, text: str) -> None:
    """By getFloatStr of nccl-tests' src/util.cu."""
    assert figure(value, width) == text


def test_what_nccl_tests_format_cannot_do_is_refused(tmp_path: Path) -> None:
    for options in (
        ["--format", "nccl-tests", "--output", str(tmp_path / "x.json")],
        ["--format", "nccl-tests", "--algorithm", "tuned"],
        ["--format", "nccl-tests", "--max-size", "4"],
    ):
        done = CliRunner().invoke(app, ["allreduce", "--device", "cpu", "--procs", "2", *options])
        assert isinstance(done.exception, FourminError), options


def test_a_format_that_is_none_is_refused() -> None:
    done = CliRunner().invoke(app, ["allreduce", "--format", "xml"], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "'--format': 'xml' is not known" in done.output


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["native", "ring", "torus", "halving-doubling"])
def test_from_eight_bytes_in_their_columns(algorithm: str) -> None:
    """Every sum is checked in and out of place by the workers, from two elements on."""
    done = CliRunner().invoke(
        app,
        ["allreduce", "--device", "cpu", "--procs", "3", "--max-size", "512B", "--factor", "8",
         "--iterations", "100", "--seconds", "60", "--format", "nccl-tests",
         "--algorithm", algorithm],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert [size for size, _, _ in superbench(done.stdout)] == [8, 64, 512]
    assert done.stdout.count("i_p99") == 6
