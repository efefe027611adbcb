"""A copy of the tree in which a newcomer adds something, and the package in it as processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class TreeCopy:
    """The package, the rules, what is generated beside them, and the golden presets' test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("fourmin", "rules", "docs", "tests/presets", "tests/support"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "tests/conftest.py"):
            shutil.copy(ROOT / name, root / name)

    def replace(self, file: str, old: str, new: str) -> None:
        """Edit a file where `old` stands in it once."""
        path = self.root / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} no longer holds {old!r} once"
        path.write_text(text.replace(old, new))

    def changed(self) -> set[str]:
        """The files that differ from the original."""
        return {
            name
            for folder in ("fourmin", "rules", "docs", "tests")
            for path in (self.root / folder).rglob("*")
            if path.is_file() and path.suffix != ".pyc"
            for name in [path.relative_to(self.root).as_posix()]
            if not (ROOT / name).is_file() or path.read_bytes() != (ROOT / name).read_bytes()
        }

    def python(self, *arguments: str, code: int = 0) -> str:
        """What a process of the copy says on both streams; asserts its exit code."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={
                **os.environ,
                "PYTHONPATH": str(self.root),
                "PYTHONDONTWRITEBYTECODE": "1",
                "XDG_STATE_HOME": str(self.root / "state"),
                "COLUMNS": "200",
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said

    def fourmin(self, *arguments: str, code: int = 0) -> str:
        """The same of a command of fourmin."""
        return self.python("-m", "fourmin", *arguments, code=code)
