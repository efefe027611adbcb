"""No mishap ends in a traceback, a lie or a leftover: real commands with seeded faults.

`FOURMIN_FAULTS=500 pytest tests/faults -m slow` injects so many, from the seed FOURMIN_FAULTS_SEED.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from campaign_factory import CREATED_MS, make_campaign
from faults import COMMANDS, SLOW, SURROUNDINGS, inject
from images import make_tree
from processes import fourmin

INJECTED = int(os.environ.get("FOURMIN_FAULTS", "60"))
FIRST_SEED = int(os.environ.get("FOURMIN_FAULTS_SEED", "1"))
KINDS = (*(one.__name__ for one in SURROUNDINGS), "signal", "signal")
_LIGHT = [name for name in COMMANDS if name not in SLOW]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every command finds: enough result sets for a pool of processes, images, one campaign
    that is open, and empty folders.
    """
    root = tmp_path_factory.mktemp("faults") / "template"
    for name in ("tmp", "state", "cache", "results", "trees", "home"):
        (root / name).mkdir(parents=True)
    make_campaign(root / "trees").rename(root / "trees" / "done")
    for number in range(23):
        make_campaign(root / "trees", created_ms=CREATED_MS + number * 10**8, submitter="other")
    make_campaign(root / "results", closed=False).rename(root / "open")
    make_tree(root / "images")
    fourmin("data", "check", str(root / "images"), state=root / "state")
    return root


def _chosen(seed: int, commands: list[str]) -> tuple[str, str]:
    chance = random.Random(seed)
    return chance.choice(commands), chance.choice(KINDS)


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("validate", "lost_output"),
        ("report", "locked_input"),
        ("register", "full_disk"),
        ("dry run", "small_shared_memory"),
    ],
)
def test_a_fault_breaks_nothing(command: str, fault: str, template: Path, tmp_path: Path) -> None:
    done = inject(FIRST_SEED, template, command, fault, tmp_path / "place")
    assert not done.broken, done


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_faults_break_nothing(template: Path, tmp_path: Path) -> None:
    broken = []
    for seed in range(FIRST_SEED, FIRST_SEED + INJECTED):
        # A command that trains takes as long as twenty others.
        commands = [*COMMANDS] if seed % 10 == 0 else _LIGHT
        command, fault = _chosen(seed, commands)
        done = inject(seed, template, command, fault, tmp_path / str(seed))
        if done.broken:
            broken.append(done)
            print(done, flush=True)
    assert not broken, "\n".join(map(str, broken))
