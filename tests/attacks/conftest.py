"""The attacks' modules import each other by name; and a repository to attack."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from worlds import copy_tree, make_repository


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("git") / "repository"
    make_repository(root)
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    """A repository of its own for each test, as the attacks have it."""
    copy_tree(template, tmp_path / "repository")
    return tmp_path / "repository"
