"""Prints the lowest version of each dependency that pyproject.toml allows, for `make test-lowest`.

Arguments are extras. What has no lower bound, such as a tool of the tests, is printed as it stands.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from fourmin.base.toml import tomllib

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def lowest(extras: list[str]) -> Iterator[str]:
    """A requirement each. Raises KeyError for an extra that is none."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    known = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *(one for name in extras for one in known[name])]:
        wanted, _, marker = requirement.partition(";")
        wanted = re.sub(r">=([^,]+)(,.*)?$", r"==\1", wanted.strip())
        yield f"{wanted};{marker}" if marker else wanted


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
