"""What lies below a path: campaigns, submissions and lone runs, found by the files they have.

Below a root of submissions a campaign has its place, and nothing else is looked for there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.mishaps import raise_if_ours
from fourmin.results.estimates import holds_estimate
from fourmin.results.importers import dawnbench, mlperf
from fourmin.results.places import AUDITS, SUBMISSIONS, SYSTEM_FILE, Place, Root, find_roots

CAMPAIGN = "campaign"
RUN = "run"
SUBMISSION = "submission"
MLPERF_RUN = "mlperf-run"
MLPERF_RUN_SET = "mlperf-run-set"
DAWNBENCH_ENTRY = "dawnbench-entry"
ESTIMATE = "estimate"
"""A file of `fourmin estimate`, which is no result."""
PACKAGES = (SUBMISSIONS, AUDITS)
"""Folders whose paths follow a grammar: a root of submissions, or a part of one, and audits."""
FOREIGN_KINDS = (MLPERF_RUN, MLPERF_RUN_SET, DAWNBENCH_ENTRY)
"""What other benchmarks leave."""

LOST_AND_FOUND = "lost+found"
"""The system's own folder on a file system, of which nobody else sees anything."""
MAX_DEPTH = 8
"""Deepest folder that is looked into: a repository, submissions/, and five levels below."""

_CAMPAIGN_FILES = ("campaign.json", "ledger.jsonl")
_RUN_FILES = ("events.log", "result.json")
_RUN_NAME = re.compile(r"run-[0-9]+\Z")


@dataclass(frozen=True)
class Target:
    """Something to check: its kind, its folder (for a single log or an entry, the file), and its
    path as the caller gave it. `logs` are the names of a run set's logs, `place` where it lies
    below a root of submissions.
    """

    kind: str
    folder: Path
    path: str
    logs: tuple[str, ...] = ()
    place: Place | None = None

    @property
    def identity(self) -> tuple[str, str]:
        """The same for the same thing by another path; a link in its place is its own thing."""
        if self.kind in (MLPERF_RUN, DAWNBENCH_ENTRY, ESTIMATE):
            return self.kind, os.path.join(os.path.realpath(self.folder.parent), self.folder.name)
        return self.kind, os.path.realpath(self.folder)


def find_all(paths: Iterable[str]) -> tuple[list[Target], list[str]]:
    """Everything at `paths` and below, each thing once, and the paths where there is nothing.

    Raises FourminError for a path that does not exist, and OSError for what may not be read.
    """
    found: dict[tuple[str, str], Target] = {}
    empty: list[str] = []
    for given in paths:
        try:
            os.lstat(given)
        except (FileNotFoundError, NotADirectoryError):
            raise FourminError(
                f"no {given}", "the path does not exist", "name a campaign, or a folder of them"
            ) from None
        targets = find_targets(given)
        if not targets:
            empty.append(given)
        for target in targets:
            found.setdefault(target.identity, target)
    return list(found.values()), empty


def find_targets(given: str) -> list[Target]:
    """Everything to check at `given` (which exists) and below it, sorted by path.

    A file stands for the folder that it belongs to. Links below `given` and hidden folders are
    not looked into, nor is anything inside a campaign.
    """
    given = given.rstrip("/") or "/"
    root = Path(given)
    if root.is_file():
        return _placed(os.path.dirname(given) or ".", _of_file(root, given))
    return _placed(given, list(_walk(root, given, 0)))


def _placed(given: str, found: list[Target]) -> list[Target]:
    """The targets with their places, and the folders whose paths follow a grammar.

    Below a root of submissions whatever is no campaign is a file that belongs there or does not.
    """
    top = os.path.abspath(given)
    paths = [os.path.abspath(target.path) for target in found]

    def of(kind: str) -> list[str]:
        return [path for path, target in zip(paths, found, strict=True) if target.kind == kind]

    roots = find_roots(top, of(CAMPAIGN), of(SUBMISSION))
    placed: dict[tuple[str, str], Target] = {}

    def add(kind: str, path: str, place: Place) -> None:
        if path == top or path.startswith(f"{top.rstrip('/')}/"):
            shown = given if path == top else os.path.join(given, os.path.relpath(path, top))
            placed.setdefault((kind, path), Target(kind, Path(shown), shown, place=place))

    for root in roots:
        part = max(root.scope, top, key=len)
        place = root.place(part) or ()
        if len(place) <= 2:  # below a system's folder are only campaigns
            add(SUBMISSIONS, part, place)
        audits = os.path.join(os.path.dirname(root.path), AUDITS)
        if os.path.basename(root.path) == SUBMISSIONS and os.path.isdir(audits):
            add(AUDITS, audits, ())
    for path, target in zip(paths, found, strict=True):
        within, place = _within(roots, path)
        described = target.kind == SUBMISSION and len(place) == 2
        if within is not None and (described or (target.kind == CAMPAIGN and len(place) > 2)):
            below = os.path.relpath(path, within.path).split("/")
            add(SUBMISSION, os.path.join(within.path, *below[:2]), place[:2])
        if within is None:
            placed[target.kind, path] = target
        elif target.kind == CAMPAIGN:
            placed[target.kind, path] = replace(target, place=place)
    return list(placed.values())


def _within(roots: Iterable[Root], path: str) -> tuple[Root | None, Place]:
    """The root that a path lies below, and its place there."""
    found = ((root, root.place(path)) for root in roots)
    return next(((root, place) for root, place in found if place is not None), (None, ()))


def _of_file(file: Path, given: str) -> list[Target]:
    folder = os.path.dirname(given) or "."
    target = _target(file.parent, folder)
    if target is not None:
        return [target]
    entries = dawnbench.entries_in(file.parent, [f"{file.stem}.json", f"{file.stem}.tsv"])
    if file.suffix.lower() in (".json", ".tsv") and entries:
        entry = file.with_name(entries[0])
        return [Target(DAWNBENCH_ENTRY, entry, os.path.join(os.path.dirname(given), entry.name))]
    if holds_estimate(file.resolve()):
        return [Target(ESTIMATE, file, given)]
    log = file.resolve()  # what the caller names may be a link
    return [Target(MLPERF_RUN, log, given)] if mlperf.is_log(log) else []


def _walk(folder: Path, path: str, depth: int, own: bool = False) -> Iterator[Target]:
    target = _target(folder, path)
    if target is not None:
        yield target
        if target.kind != SUBMISSION:
            return
        own = True
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
            os.lstat(os.path.join(folder, "."))  # to list names is not to see what has them
    except OSError as error:
        if folder.name == LOST_AND_FOUND:
            return
        raise_if_ours(error)
        return
    if not own:
        yield from _foreign(folder, path, [e.name for e in found if not _is_folder(e)])
    if depth >= MAX_DEPTH:
        return
    for entry in found:
        if _is_folder(entry) and not entry.name.startswith("."):
            below = os.path.join(path, entry.name)
            yield from _walk(folder / entry.name, below, depth + 1, own)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _foreign(folder: Path, path: str, names: list[str]) -> Iterator[Target]:
    """Estimates, and the results of other benchmarks, among the files of a folder.

    One log alone is a run, unless it lies where a package has its sets.
    """
    for name in names:
        if holds_estimate(folder / name):
            yield Target(ESTIMATE, folder / name, os.path.join(path, name))
    for name in dawnbench.entries_in(folder, names):
        yield Target(DAWNBENCH_ENTRY, folder / name, os.path.join(path, name))
    logs = mlperf.logs_in(folder, names)
    if len(logs) == 1 and not mlperf.in_package(folder):
        yield Target(MLPERF_RUN, folder / logs[0], os.path.join(path, logs[0]))
    elif logs:
        yield Target(MLPERF_RUN_SET, folder, path, tuple(logs))


def _target(folder: Path, path: str) -> Target | None:
    """What `folder` itself is, or None."""
    if _has(folder, _CAMPAIGN_FILES):
        return Target(CAMPAIGN, folder, path)
    if _has(folder, (SYSTEM_FILE,)):
        return Target(SUBMISSION, folder, path)
    name = folder.name or folder.resolve().name
    if _RUN_NAME.match(name) and (_has(folder, _RUN_FILES) or campaign_of(folder)):
        return Target(RUN, folder, path)
    return None


def campaign_of(run_folder: Path) -> Path | None:
    """The campaign's folder that a run's folder lies in, or None."""
    parent = run_folder.absolute().parent
    return parent if _has(parent, _CAMPAIGN_FILES) else None


def _has(folder: Path, names: tuple[str, ...]) -> bool:
    return any(os.path.lexists(folder / name) for name in names)
