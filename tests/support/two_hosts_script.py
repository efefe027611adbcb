"""The two-host testbed of benchmarks/two_hosts.py, which is a script, as a module."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "two_hosts.py"


def load_two_hosts() -> ModuleType:
    """The script's functions."""
    specification = importlib.util.spec_from_file_location("two_hosts", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
