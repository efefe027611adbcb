"""Gloo worlds: processes that stay up for the session and run cases on demand."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The worker processes import the helpers by name; one thread each, or two cores are not enough.
sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from gloo_world import GlooWorld


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], GlooWorld]]:
    """``world(size)``: a gloo world of that size, started once for each size."""
    running: dict[int, GlooWorld] = {}

    def get(size: int) -> GlooWorld:
        if size not in running:
            running[size] = GlooWorld(size, tmp_path_factory.mktemp("world"), timeout_seconds=60)
        return running[size]

    yield get
    for each in running.values():
        each.close()


@pytest.fixture
def fragile_world(tmp_path: Path) -> Iterator[Callable[[int, float], GlooWorld]]:
    """``fragile_world(size, timeout_seconds)``: a world of its own, for a test that breaks it."""
    running: list[GlooWorld] = []

    def get(size: int, timeout_seconds: float) -> GlooWorld:
        running.append(GlooWorld(size, tmp_path, timeout_seconds))
        return running[-1]

    yield get
    for each in running:
        each.close()
