"""A git repository of any shape, for tests: commits, branches and merges in a word each."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from fourmin.ledger.landings import BEACON_FILE

if TYPE_CHECKING:
    from typing_extensions import Self

IDENTITY = {f"GIT_{role}_{what}": "a" for role in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")}  # fmt: skip


class History:
    """A repository whose branch `main` starts with a beacon and a README."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "--quiet", "--initial-branch", "main", *options)
        self.commit({"README.md": b"", BEACON_FILE: b"start\n"})

    @classmethod
    def at(cls, root: Path) -> Self:
        """The repository that is there already."""
        found = cls.__new__(cls)
        found.root = root
        return found

    def copy(self, to: Path) -> Self:
        """The same repository, by itself."""
        shutil.copytree(self.root, to, symlinks=True)
        return self.at(to)

    def git(self, *arguments: str, given: str = "") -> str:
        """What git says to `given` on its standard input."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, env=os.environ | IDENTITY, check=True,
            capture_output=True, text=True, input=given,
        )  # fmt: skip
        return done.stdout.strip()

    def commit(self, files: dict[str, bytes | None], *options: str) -> str:
        """A commit that writes these files; None takes one away. Its id."""
        for name, content in files.items():
            path = self.root / name
            if content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change", *options)
        return self.git("rev-parse", "HEAD")

    def branch(self, name: str, start: str = "main") -> None:
        self.git("checkout", "--quiet", "-b", name, start)

    def merge(self, name: str, *options: str) -> str:
        """Merge a branch into main; the id of main after."""
        self.git("checkout", "--quiet", "main")
        self.git("merge", "--quiet", *options, name)
        return self.git("rev-parse", "HEAD")
