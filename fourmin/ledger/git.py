"""What a git repository of submissions knows: what changed since a base, and what was there first.

Git is only asked, with hooks, external programs, replaced objects, connections and terminal
prompts switched off, and within limits: the repository may hold somebody else's files.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.results.folder import MAX_FILE_BYTES

SECONDS = 120
MOST_BYTES = 256 * 1024 * 1024
"""Most that is read from one call: a few objects of a hostile repository can name endless files."""
MOST_BRANCHES = 20
_SAFE = (
    "--no-optional-locks",
    "--no-replace-objects",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "diff.external=",
    "-c", "core.quotePath=false",
    "-c", "log.showSignature=false",
    "-c", "log.diffMerges=first-parent",
    "-c", "protocol.allow=never",
)  # fmt: skip


_TRUSTING = re.compile(r"git config --global --add safe\.directory .+")


@dataclass(frozen=True)
class Blob:
    """A file of a commit: its object, its size in bytes, and whether it is no link or module."""

    name: str
    size: int
    regular: bool


@dataclass(frozen=True)
class Changed:
    """A path that differs from the base: `A` added, `M` modified, `D` deleted, `T` type changed."""

    status: str
    path: str


@dataclass(frozen=True)
class Write:
    """What a commit does to a path: the object before, and the file after, empty for all else."""

    path: str
    before: str
    after: str


@dataclass(frozen=True)
class Person:
    """Who made a commit, as it says."""

    name: str
    address: str

    def is_also(self, other: Person) -> bool:
        """Whether name or address are one, without regard to case."""
        pairs = ((self.name, other.name), (self.address, other.address))
        return any(a.strip() and a.strip().casefold() == b.strip().casefold() for a, b in pairs)


@dataclass(frozen=True)
class Step:
    """A commit, and all that it changes against its first parent."""

    commit: str
    time_ms: int
    parents: int
    author: Person
    committer: Person
    writes: list[Write] = field(default_factory=list)


@dataclass(frozen=True)
class Repository:
    """A repository's working tree beside the commit that it started from.

    `root` is the top of the working tree; `base` the merge base of the named reference and HEAD,
    or of a push the commit that it started from; `branch` the commit that the reference names.
    """

    root: Path
    base: str
    branch: str
    pushed: bool = False
    """Whether the base is the state before a push."""

    @classmethod
    def open(cls, folder: Path, reference: str, *, pushed: bool = False) -> Repository:
        """The repository that holds `folder`, with `reference` as its base.

        Raises FourminError where there is no repository, no such reference, or a shallow clone,
        which does not know what was there first.
        """
        if reference.startswith("-"):
            raise FourminError(f"no git reference {reference}", next_step="such as origin/main")
        start = folder if folder.is_dir() else folder.parent
        root = Path(_git(start, "rev-parse", "--show-toplevel", what=f"{folder} in git").strip())
        if _is_shallow(root):
            raise FourminError(
                "--base needs the whole history, and this clone is shallow",
                "what was registered first cannot be seen in a part of it",
                "git fetch --unshallow, or in a workflow: fetch-depth: 0",
            )
        what = f"the commit before the push {reference}" if pushed else f"the reference {reference}"
        branch = _commit(root, reference, what)
        if pushed:
            return cls(root, branch, branch, pushed)
        base = _git(root, "merge-base", branch, "HEAD", what=f"a base common with {reference}")
        return cls(root, base.strip(), branch)

    @classmethod
    def around(cls, folder: Path) -> Repository | None:
        """The repository that holds `folder`, which need not exist yet, as `default_base` is.

        None where there is no repository, or no commit in it. The clone may be shallow. Raises
        FourminError where git does not open it, or is not there.
        """
        if repository_around(folder) is None:
            return None
        start = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
        root = Path(_git(start, "rev-parse", "--show-toplevel", what=f"{folder} in git").strip())
        named = f"{default_base(start)}^{{commit}}"
        commit = _run(start, "rev-parse", "--verify", "--quiet", named).stdout.decode().strip()
        return cls(root, commit, commit) if commit else None

    @cached_property
    def rewritten(self) -> bool:
        """Whether HEAD does not go on from the branch."""
        return _run(self.root, "merge-base", "--is-ancestor", self.branch, "HEAD").returncode != 0

    @cached_property
    def ahead(self) -> frozenset[str]:
        """The commits of the branch that HEAD does not have."""
        return frozenset(_git(self.root, "rev-list", f"HEAD..{self.branch}").split())

    def others_with(self, commit: str) -> list[Repository]:
        """HEAD and the branches whose history holds a commit, a few of them at most."""
        told = _run(
            self.root, "for-each-ref", f"--count={MOST_BRANCHES}", f"--contains={commit}",
            "--format=%(objectname)", "refs/remotes", "refs/heads",
        )  # fmt: skip
        tips = [head_of(self.root), *told.stdout.decode().split()]
        return [Repository(self.root, tip, tip) for tip in dict.fromkeys(tips)]

    @cached_property
    def shallow(self) -> bool:
        """Whether a part of the history is missing, so that nothing tells what was there first."""
        return _is_shallow(self.root)

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
        return {path: blob for path, blob in _tree(self.root, self.base) if blob.regular}

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
        blobs = list(found.values())
        contents = _read_blobs(self.root, [b.name for b in blobs], sum(b.size for b in blobs))
        self._contents.update(zip(found, contents, strict=True))

    @cached_property
    def _contents(self) -> dict[str, bytes | None]:
        return {}

    def blobs(self, names: Iterable[str], most: int) -> dict[str, bytes]:
        """The bytes of objects by name, of `most` at most, and of MOST_BYTES together."""
        wanted = list(dict.fromkeys(names))
        asked = "".join(f"{name}\n" for name in wanted).encode()
        told = _run(self.root, "cat-file", "--batch-check", given=asked).stdout.decode().split("\n")
        sizes = {name: line.split()[-1] for name, line in zip(wanted, told, strict=False)}
        found, left = [], MOST_BYTES
        for name, size in sizes.items():
            if size.isdigit() and int(size) <= min(most, left):
                found.append(name)
                left -= int(size)
        return dict(zip(found, _read_blobs(self.root, found, MOST_BYTES), strict=True))

    def steps(self, *globs: str, within: bool = False) -> Iterator[Step]:
        """Commits of the branch's first-parent line that change such a path, oldest first;
        `within`, those of everything that was merged as well, and the merges not.
        """
        which = ["--full-history", "--topo-order", "--no-merges"] if within else ["--first-parent"]
        told = _git(
            self.root, "log", *which, "-m", "--root", "--reverse", "--raw", "-z", "--no-abbrev",
            "--no-renames", "--full-diff", "--no-color", "--no-mailmap",
            "--encoding=none",
            "--format=%H %ct %P%n%an%n%ae%n%cn%n%ce", self.branch, "--",
            *(f":(top,glob){glob}" for glob in globs),
        )  # fmt: skip
        step: Step | None = None
        fields = iter(told.split("\0")[:-1])
        for one in fields:
            line, _, people = one.lstrip("\n").partition("\n")
            head = line.split()
            if step is not None and head[0].startswith(":"):
                _, mode, before, blob, _ = head
                regular = mode.startswith("100")
                step.writes.append(Write(next(fields), before, blob if regular else ""))
                continue
            if step is not None:
                yield step
            said = people.split("\n")
            author, committer = Person(*said[:2]), Person(*said[2:4])
            step = Step(head[0], int(head[1]) * 1000, len(head) - 2, author, committer)
        if step is not None:
            yield step

    def commits_touching(self, glob: str) -> list[str]:
        """The commits since the branch, but merges, that change such a path, oldest first."""
        asked = ("--full-history", "--no-merges", "--reverse", f"{self.branch}..HEAD", "--")
        return _git(self.root, "rev-list", *asked, f":(top,glob){glob}").split()

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


def repository_around(path: Path) -> Path | None:
    """The nearest folder at or above `path` that has a `.git`, found without asking git."""
    inside = path.resolve()
    return next((one for one in (inside, *inside.parents) if os.path.lexists(one / ".git")), None)


def head_of(root: Path) -> str:
    """The commit that is checked out. Raises FourminError where there is none."""
    return _commit(root, "HEAD", f"a commit in {root}")


def files_at(
    root: Path, commit: str, folders: Sequence[str], wanted: Callable[[str], bool], most: int
) -> dict[str, bytes]:
    """The files in some folders of any commit, by path from the root; at most `most` bytes.

    Raises FourminError where there is no such commit, for links and modules, and beyond `most`.
    """
    if _commit(root, commit, f"the commit {commit}") != commit:
        raise FourminError(f"{commit} is no commit")
    listed = _tree(root, commit, *folders, most=most // 8)
    tree = {path: blob for path, blob in listed if wanted(path)}
    for path, blob in tree.items():
        if not blob.regular:
            raise FourminError(f"{path} is no regular file in {commit}")
    if sum(blob.size for blob in tree.values()) > most:
        raise FourminError(f"the files of {commit} have more than {most:,} bytes")
    contents = _read_blobs(root, [blob.name for blob in tree.values()], most)
    return dict(zip(tree, contents, strict=True))


def _commit(root: Path, name: str, what: str) -> str:
    """The id of the commit of this name. Raises FourminError, which calls it `what`."""
    return _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", what=what).strip()


def _is_shallow(root: Path) -> bool:
    return _git(root, "rev-parse", "--is-shallow-repository").strip() == "true"


def _tree(
    root: Path, commit: str, *folders: str, most: int = MOST_BYTES
) -> Iterator[tuple[str, Blob]]:
    """What lies in a commit (all of it, or in some folders), by path."""
    listed = _git(root, "ls-tree", "-r", "-l", "-z", commit, "--", *folders, most=most)
    for line in listed.split("\0")[:-1]:
        entry, _, path = line.partition("\t")
        mode, kind, name, size = entry.split()
        regular = kind == "blob" and mode.startswith("100")
        yield path, Blob(name, int(size) if size.isdigit() else 0, regular)


def _read_blobs(root: Path, names: Sequence[str], most: int) -> list[bytes]:
    """The bytes of objects, in their order. Raises FourminError where one is missing."""
    asked = "".join(f"{name}\n" for name in names).encode()
    told = _run(root, "cat-file", "--batch", given=asked, most=most + 100 * len(names)).stdout
    found, at = [], 0
    for name in names:
        head, _, _ = told[at : at + 200].partition(b"\n")
        size = head.rpartition(b" ")[2]
        if not size.isdigit():
            raise FourminError(f"git has no object {name}")
        start = at + len(head) + 1
        at = start + int(size) + 1
        found.append(told[start : at - 1])
    return found


def _git(folder: Path, *arguments: str, what: str = "", most: int = MOST_BYTES) -> str:
    result = _run(folder, *arguments, most=most)
    if result.returncode != 0:
        told = result.stderr.decode(errors="replace").strip()
        trusting = _TRUSTING.search(told)
        if trusting:
            raise FourminError(
                f"git does not open the repository of {folder}",
                "it belongs to another user",
                f"if you trust what lies there: {trusting[0]}",
            )
        raise FourminError(
            f"git cannot find {what}" if what else f"git {arguments[0]} failed",
            told.partition("\n")[0],
            "it must be in the clone, whose files are the paths: a branch, a tag or a commit",
        )
    return result.stdout.decode("utf-8", "surrogateescape")


def _run(
    folder: Path, *arguments: str, given: bytes = b"", most: int = MOST_BYTES
) -> subprocess.CompletedProcess[bytes]:
    """Git's answer to `given` on its standard input.

    Raises FourminError without git, after SECONDS, and for more than `most` bytes.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "GIT_PAGER": "cat"}
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as complaints:
        asked.write(given)
        asked.seek(0)
        try:
            process = subprocess.Popen(
                ["git", *_SAFE, *arguments],
                cwd=folder,
                env=environment,
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=complaints,
            )
        except FileNotFoundError:
            raise FourminError("git is not installed here", "history is read by it") from None
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        try:
            with process:
                assert process.stdout is not None
                told = process.stdout.read(most + 1)
                if len(told) > most:
                    process.kill()
        finally:
            timer.cancel()
        if len(told) > most or process.returncode == -signal.SIGKILL:
            limit = f"{most:,} bytes" if len(told) > most else f"{SECONDS} s"
            raise FourminError(f"git {arguments[0]} took more than {limit}")
        complaints.seek(0)
        return subprocess.CompletedProcess(
            process.args, process.returncode, told, complaints.read(10_000)
        )
