"""What a git repository of submissions knows: what changed since a base, and what was there first.

Git is only asked, by its plumbing commands, with hooks, external programs and terminal prompts
switched off: the repository may hold somebody else's files.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.results.folder import MAX_FILE_BYTES

SECONDS = 120
_SAFE = (
    "--no-optional-locks",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "diff.external=",
    "-c", "core.quotePath=false",
)  # fmt: skip


@dataclass(frozen=True)
class Blob:
    """A file of a commit: its object and its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Changed:
    """A path that differs from the base: `A` added, `M` modified, `D` deleted, `T` type changed."""

    status: str
    path: str


@dataclass(frozen=True)
class Repository:
    """A repository's working tree beside the commit that it started from.

    `root` is the top of the working tree; `base` the merge base of the named reference and HEAD;
    `branch` the commit that the reference names.
    """

    root: Path
    base: str
    branch: str

    @classmethod
    def open(cls, folder: Path, reference: str) -> Repository:
        """The repository that holds `folder`, with `reference` as its base.

        Raises FourminError where there is no repository, no such reference, or a shallow clone,
        which does not know what was there first.
        """
        if reference.startswith("-"):
            raise FourminError(f"no git reference {reference}", next_step="such as origin/main")
        start = folder if folder.is_dir() else folder.parent
        root = Path(_git(start, "rev-parse", "--show-toplevel", what=f"{folder} in git").strip())
        if _git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
            raise FourminError(
                "--base needs the whole history, and this clone is shallow",
                "what was registered first cannot be seen in a part of it",
                "git fetch --unshallow, or in a workflow: fetch-depth: 0",
            )
        what = f"the git reference {reference}"
        branch = _git(
            root, "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}", what=what
        )
        base = _git(
            root, "merge-base", branch.strip(), "HEAD", what=f"a base common with {reference}"
        )
        return cls(root, base.strip(), branch.strip())

    @cached_property
    def changes(self) -> list[Changed]:
        """What differs between the base and the working tree, untracked files included, by path."""
        fields = _git(
            self.root, "diff", "--name-status", "-z", "--no-renames", "--no-ext-diff",
            "--no-textconv", self.base,
        ).split("\0")[:-1]  # fmt: skip
        found = [
            Changed(status[:1], path)
            for status, path in zip(fields[::2], fields[1::2], strict=True)
        ]
        untracked = _git(self.root, "ls-files", "--others", "--exclude-standard", "-z")
        found += [Changed("A", path) for path in untracked.split("\0")[:-1]]
        return sorted(found, key=lambda changed: changed.path)

    @cached_property
    def files(self) -> Mapping[str, Blob]:
        """Every regular file of the base, by path from the root."""
        found: dict[str, Blob] = {}
        for line in _git(self.root, "ls-tree", "-r", "-l", "-z", self.base).split("\0")[:-1]:
            entry, _, path = line.partition("\t")
            mode, kind, name, size = entry.split()
            if kind == "blob" and mode.startswith("100"):
                found[path] = Blob(name, int(size))
        return found

    def read(self, path: str) -> bytes | None:
        """The bytes of a file of the base; None where it has none, or one beyond the limit."""
        self.fetch([path])
        return self._contents[path]

    def fetch(self, paths: Iterable[str]) -> None:
        """Read many files of the base at once, for `read`: a call of git takes milliseconds."""
        wanted = {path: self.files.get(path) for path in paths if path not in self._contents}
        found = {p: b for p, b in wanted.items() if b is not None and b.size <= MAX_FILE_BYTES}
        self._contents.update(dict.fromkeys(wanted))
        if not found:
            return
        names = "".join(f"{blob.name}\n" for blob in found.values())
        data = _run(self.root, "cat-file", "--batch", data=names.encode()).stdout
        at = 0
        for path, blob in found.items():
            start = data.index(b"\n", at) + 1
            at = start + blob.size + 1
            self._contents[path] = data[start : at - 1]

    @cached_property
    def _contents(self) -> dict[str, bytes | None]:
        return {}

    def first_commit_with(self, path: str) -> str | None:
        """The first commit on the branch's first-parent line that contains `path`."""
        commits = _git(
            self.root, "log", "--first-parent", "--reverse", "--diff-filter=A", "--format=%H",
            "--no-renames", self.branch, "--", f":(top,literal){path}",
        ).split()  # fmt: skip
        return commits[0] if commits else None

    def relative(self, path: str) -> str | None:
        """`path` (as a caller gave it) from the root with `/`, None where it lies outside."""
        try:
            return Path(path).resolve().relative_to(self.root.resolve()).as_posix()
        except ValueError:
            return None


def default_base(folder: Path) -> str:
    """The branch that others merge into: the remote's default one, or the branch at hand."""
    start = folder if folder.is_dir() else folder.parent
    remote = _run(start, "rev-parse", "--verify", "--quiet", "refs/remotes/origin/HEAD")
    return "origin/HEAD" if remote.returncode == 0 else "HEAD"


def _git(folder: Path, *arguments: str, what: str = "") -> str:
    result = _run(folder, *arguments)
    if result.returncode != 0:
        told = result.stderr.decode(errors="replace").strip().splitlines()
        raise FourminError(
            f"git cannot find {what}" if what else f"git {arguments[0]} failed",
            told[0] if told else "",
            "--base names a branch, tag or commit, and the paths lie in its repository",
        )
    return result.stdout.decode("utf-8", "surrogateescape")


def _run(folder: Path, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "GIT_PAGER": "cat"}
    try:
        return subprocess.run(
            ["git", *_SAFE, *arguments],
            cwd=folder,
            env=environment,
            input=data,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise FourminError("--base needs git", "it is not installed here") from None
    except subprocess.TimeoutExpired:
        raise FourminError(f"git {arguments[0]} took longer than {SECONDS} s") from None
