"""Whole practice runs on digits in the open division, and what their logs say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes import fourmin

ONE = ["--practice", "--runs", "1", "--seed", "20181", "--set", "device=cpu"]


def settings(**fields: str) -> list[str]:
    fields = {"division": "open", **fields}
    return [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]


def records(root: Path, key: str) -> list[dict[str, Any]]:
    lines = next(root.glob("*/run-1/events.log")).read_text().splitlines()
    found = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    return [one for one in found if one["key"] == key]


def values(root: Path, key: str) -> list[Any]:
    return [one["value"] for one in records(root, key)]


def assert_alike(one: Path, other: Path, *same: str) -> None:
    """Two runs have the same values of some keys, and losses that differ by rounding alone."""
    for key in same:
        assert values(one, key) == values(other, key), key
    expected, losses = values(one, "step_loss")[0], values(other, "step_loss")[0]
    assert losses == pytest.approx(expected, rel=1e-6)
    told = [[of["train_loss"] for of in values(root, "tracked_stats")] for root in (one, other)]
    assert told[1] == pytest.approx(told[0], rel=1e-5)


def verdicts_of_audit(root: Path) -> list[str]:
    """Of initial weights, data order and first losses."""
    done = fourmin("audit", str(next(root.glob("practice-*"))), "--json", state=root)
    assert done.returncode == 0, done.stdout + done.stderr
    return [one["verdict"] for one in json.loads(done.stdout)["comparisons"]]


def report_of(root: Path) -> str:
    done = fourmin("report", str(root), "--format", "json", state=root)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def ran(root: Path, *options: str) -> Path:
    done = fourmin("run", "--json", *options, "--results-dir", str(root), state=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["valid"] is True
    return root
