"""Whole practice runs on digits in the open division, and what their logs say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def ran(root: Path, *options: str) -> Path:
    done = fourmin("run", "--json", *options, "--results-dir", str(root), state=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["valid"] is True
    return root
