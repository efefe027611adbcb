"""Golden files: a difference fails, and the option writes them anew and runs nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parents[1] / "support"
TESTS = """\
def test_kept(golden):
    golden.check("page.txt", "new\\r\\nzwölf\\n")

def test_close(golden):
    assert abs(float(golden.kept("number.txt", "1.25")) - 1.25) < 0.5

def test_of_something_else():
    raise AssertionError("another")
"""
OLD = {"page.txt": b"old\n", "number.txt": b"1.5"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_pages.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def put(folder: Path, kept: dict[str, bytes]) -> None:
    (folder / "golden").mkdir()
    for name, content in kept.items():
        (folder / "golden" / name).write_bytes(content)


def lying_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "golden").iterdir()}


def run(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "golden", "-p", "no:cacheprovider", *options]
    environment = {"PYTHONPATH": str(SUPPORT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout


def test_a_difference_fails_and_nothing_is_written(folder: Path) -> None:
    put(folder, OLD)
    said = run(folder)
    assert "page.txt has changed; if that is meant: make golden" in said
    assert "2 failed, 1 passed" in said
    assert lying_in(folder) == OLD


def test_a_file_that_is_not_there_fails(folder: Path) -> None:
    said = run(folder)
    assert "3 failed" in said
    assert not (folder / "golden").exists()


@pytest.mark.parametrize("kept", [OLD, None], ids=["over old files", "where none is"])
def test_the_option_writes_to_the_byte_and_runs_nothing_else(
    folder: Path, kept: dict[str, bytes] | None
) -> None:
    if kept is not None:
        put(folder, kept)
    assert "2 passed, 1 deselected" in run(folder, "--update-golden")
    assert lying_in(folder) == {"page.txt": "new\r\nzwölf\n".encode(), "number.txt": b"1.25"}
    assert "1 failed, 2 passed" in run(folder)
