"""What holds for every test: where its helpers are, and when its turn is.

Tests that start whole runs (with the helpers of `processes`) come first, since they are the
longest: beside them the other workers of pytest-xdist do all the rest.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from fourmin.base.errors import ENDING

TESTS = Path(__file__).resolve().parent
PLACES = (TESTS / "support", TESTS.parent / "docs" / "tools", TESTS.parent / "tools")
sys.path[:0] = map(str, PLACES)
# `import readline`, which pytest does, sets it for child processes.
os.environ.pop("COLUMNS", None)
# Tests run beside each other: one thread for each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
if not Path("/dev/nvidiactl").exists():
    # Triton's interpreter stands in for a GPU: read when a kernel is decorated, some of them at
    # Triton's own import, which other tests may bring about before those of the kernels.
    os.environ["TRITON_INTERPRET"] = "1"

pytest_plugins = ["finished_runs", "golden"]

# A busy machine is no fault of what is tested.
hypothesis.settings.register_profile("fourmin", deadline=None)
hypothesis.settings.load_profile("fourmin")


@pytest.fixture(scope="session", autouse=True)
def _own_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Campaigns of tests are none that this machine's user has run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """What a command called in this process does to signals ends with its test: with SIGPIPE as
    filters have it, a later test that writes to a closed socket would kill its worker.
    """
    kept = {number: signal.getsignal(number) for number in (signal.SIGPIPE, *ENDING)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@cache
def _starts_runs(path: Path) -> bool:
    """Whether a file takes the helpers of `processes`."""
    found = ast.walk(ast.parse(path.read_bytes()))
    return any(isinstance(one, ast.ImportFrom) and one.module == "processes" for one in found)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not _starts_runs(item.path))
