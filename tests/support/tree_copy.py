"""A copy of the tree, to which a test adds what a newcomer would, and the commands in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class TreeCopy:
    """The package, and what `make docs` writes, below `root`; each command is its own process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        leave = shutil.ignore_patterns("__pycache__")
        for folder in ("fourmin", "rules", "docs", "tests/presets/golden"):
            shutil.copytree(ROOT / folder, root / folder, ignore=leave)

    def insert(self, file: str, before: str, text: str) -> None:
        """Put `text` in front of the only `before` in a file."""
        path = self.root / file
        content = path.read_text()
        assert content.count(before) == 1, f"{file} does not hold {before!r} once"
        path.write_text(content.replace(before, text + before))

    def changed(self, folder: str) -> set[str]:
        """The files of a folder that are not those of the original."""
        files = [path for path in (self.root / folder).rglob("*.*") if path.is_file()]
        names = {path: path.relative_to(self.root).as_posix() for path in files}
        return {
            name
            for path, name in names.items()
            if not (ROOT / name).is_file() or path.read_bytes() != (ROOT / name).read_bytes()
        }

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"XDG_STATE_HOME": str(self.root / "state"), "COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def make_docs(self) -> None:
        """Write anew what is made from the entries and fields."""
        done = self.python("-m", "fourmin.recipe.pages")
        assert done.returncode == 0, done.stderr

    def fourmin(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "fourmin", *arguments)
