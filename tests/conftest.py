"""What holds for every test: where its helpers are, when its turn is, and what coverage follows.

All of it follows from the tests themselves, so that a new file or folder needs no word elsewhere:

- Tests that start whole runs (with the helpers of `processes`) come first, since they are the
  longest: beside them the other workers of pytest-xdist do all the rest.
- A test whose module imports torch or the training wing, or that is marked `untraced`, is not
  traced: coverage is of the part that never imports torch, and tracing takes time.
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
def _imports(path: Path) -> set[str]:
    """What a file imports, wherever the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def _takes(item: pytest.Item, *modules: str) -> bool:
    """Whether the item's file imports one of these modules, or one below them."""
    starts = tuple(f"{name}." for name in modules)
    return any(name in modules or name.startswith(starts) for name in _imports(item.path))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not _takes(item, "processes"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Stops the tracer, where there is one, while a test runs that is not traced."""
    coverage = sys.modules.get("coverage")
    tracer = None if coverage is None else coverage.Coverage.current()
    untraced = item.get_closest_marker("untraced") or _takes(item, "torch", "fourmin.training")
    if tracer is None or not untraced:
        return (yield)
    tracer.stop()
    try:
        return (yield)
    finally:
        tracer.start()
