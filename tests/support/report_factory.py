"""A folder of results of every kind that a report shows, the same to the byte every time."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from campaign_factory import CREATED_MS, SYSTEM, make_campaign
from foreign_factory import make_package

HOUR_MS = 3_600_000
PRICES = """\
[[price]]
system = "1xA1000"
per_hour = 1.5
currency = "USD"
source = "https://example.org/prices"
date = 2026-11-28
"""


def gpu_system(count: int, **software: str) -> dict[str, Any]:
    """A node with `count` accelerators."""
    system = copy.deepcopy(SYSTEM)
    system["hardware"]["accelerators"] = [{"model": "ACME A1000", "memory_gib": 80, "count": count}]
    system["limits"] = {
        "processor": {"max_mhz": None, "flags": []},
        "accelerators": [
            {
                "model": "ACME A1000",
                "cores": 10_000,
                "capability": "9.0",
                "max_mhz": 2000,
                "power_watts": 500,
            }
        ],
    }
    system["software"].update(software)
    return system


def gpu_campaign(root: Path, number: int, gpus: int, **story: Any) -> Path:
    """A campaign of one worker a GPU."""
    return make_campaign(
        root,
        created_ms=CREATED_MS + number * HOUR_MS,
        beacon=f"{number:064x}",
        chance=100 * number,
        submitter="lab",
        system_name=f"{gpus}xA1000",
        **{
            "system": gpu_system(gpus),
            "configuration": {"device": "cuda", "precision": "fp16", "procs_per_node": gpus},
            **story,
        },
    )


def make_results(root: Path) -> None:
    """On 1 and 2 GPUs, a failed, an unfinished and a practice campaign; and one of MLPerf."""
    gpu_campaign(root / "one", 1, 1, epoch_ms=500.0)
    gpu_campaign(root / "two", 2, 2, epoch_ms=260.0, system=gpu_system(2, torch="2.13.0"))
    gpu_campaign(root / "failed", 3, 4, not_converged=[1, 2])
    gpu_campaign(root / "killed", 4, 8, killed_in=3)
    gpu_campaign(root / "practice", 5, 1, practice=True, runs=2)
    make_package(root / "mlperf")
