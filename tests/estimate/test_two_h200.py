"""NCCL's all-reduce on two H200, as measured, against the model fitted without that size."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

import pytest

from fourmin.estimate.collectives import Grouping, native
from fourmin.estimate.profile import load_profile

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
PAIR = Grouping(2, 2, 2)
PROFILE = replace(load_profile("dgx-h100"), nvls_bandwidth=0.0)
"""The two were measured without multicast."""


def measured() -> dict[int, float]:
    """Seconds by bytes: the median of all recorded runs."""
    found = defaultdict(list)
    for path in RESULTS.glob("scaling-2xH200-*.json"):
        for row in json.loads(path.read_text())["allreduce"]["rows"]:
            if row["algorithm"] == "native":
                found[row["bytes"]].append(1e-3 * row["milliseconds"])
    return {size: median(values) for size, values in sorted(found.items())}


def seconds(nbytes: int, call: float, bandwidth: float) -> float:
    profile = replace(PROFILE, call_seconds=call, inside_bandwidth=bandwidth)
    return native(nbytes, PAIR, profile).seconds


def fit(known: dict[int, float]) -> tuple[float, float]:
    """Seconds of a call and bytes a second with the least squared relative error, on a grid."""
    grid = product((n * 1e-6 for n in range(30, 61)), (n * 1e9 for n in range(280, 381, 5)))
    return min(grid, key=lambda at: sum((seconds(n, *at) / s - 1) ** 2 for n, s in known.items()))


def test_sizes_left_out_of_the_fit_are_met_within_a_fifth() -> None:
    known = measured()
    asked = [size for size in known if size >= 64 << 10]
    assert len(asked) == 8
    assert (asked[0], asked[-1]) == (64 << 10, 1 << 30)
    for size in asked:
        numbers = fit({other: taken for other, taken in known.items() if other != size})
        assert seconds(size, *numbers) == pytest.approx(known[size], rel=0.2), size


def test_the_profile_has_the_call_that_was_measured() -> None:
    known = measured()
    call, _ = fit(known)
    assert PROFILE.call_seconds == pytest.approx(call, rel=0.05)
    assert PROFILE.call_seconds == pytest.approx(
        median(known[1 << n] for n in (10, 12, 14)), rel=0.05
    )
