"""Golden files: what a test makes, as it was when somebody last read it.

They lie in `golden/` beside the tests. `make golden`, which is `pytest --update-golden`, runs only
the tests that compare with them and writes them anew: what has changed is then read in the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest

OPTION = "--update-golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION, action="store_true", help="write the golden files anew; runs no other test"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption(OPTION):
        others = [item for item in items if "golden" not in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in set(others)]
        config.hook.pytest_deselected(items=others)


class Golden:
    """The golden files of one folder of tests."""

    def __init__(self, folder: Path, update: bool) -> None:
        self.folder = folder
        self.update = update

    def kept(self, name: str, anew: str) -> str:
        """The text of a file; where golden files are updated, `anew` is written first."""
        path = self.folder / name
        if self.update:
            self.folder.mkdir(exist_ok=True)
            path.write_bytes(anew.encode())
        return path.read_bytes().decode()

    def check(self, name: str, text: str) -> None:
        """Assert that a file holds `text`, to the byte."""
        assert text == self.kept(name, text), f"{name} has changed; if that is meant: make golden"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """The golden files beside the test that asks for them."""
    return Golden(request.path.parent / "golden", request.config.getoption(OPTION))
