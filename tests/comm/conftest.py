"""Local worlds: processes that stay up for the session and run cases on demand."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The worker processes import the helpers by name; one thread each, or two cores are not enough.
sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from local_world import LocalWorld

MOST_WORLDS = 3
"""Gloo's threads of worlds that nobody uses wake up two hundred times a second."""


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], LocalWorld]]:
    """``world(size)``: a gloo world of that size, which stays up while few others are asked for."""
    running: dict[int, LocalWorld] = {}

    def get(size: int) -> LocalWorld:
        if size not in running:
            if len(running) == MOST_WORLDS:
                running.pop(next(iter(running))).close()
            running[size] = LocalWorld(size, tmp_path_factory.mktemp("world"), timeout_seconds=60)
        return running[size]

    yield get
    for each in running.values():
        each.close()


@pytest.fixture
def fragile_world(tmp_path: Path) -> Iterator[Callable[[int, float], LocalWorld]]:
    """``fragile_world(size, timeout_seconds)``: a world of its own, for a test that breaks it."""
    running: list[LocalWorld] = []

    def get(size: int, timeout_seconds: float) -> LocalWorld:
        running.append(LocalWorld(size, tmp_path, timeout_seconds))
        return running[-1]

    yield get
    for each in running:
        each.close()
