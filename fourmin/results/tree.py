"""What lies below a path: campaigns, submissions and lone runs, found by the files they have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CAMPAIGN = "campaign"
RUN = "run"
SUBMISSION = "submission"

MAX_DEPTH = 8
"""Deepest folder that is looked into: a repository, submissions/, and five levels below."""

_CAMPAIGN_FILES = ("campaign.json", "ledger.jsonl")
_RUN_FILES = ("events.log", "result.json")
_RUN_NAME = re.compile(r"run-[0-9]+\Z")


@dataclass(frozen=True)
class Target:
    """Something to check: its kind, its folder, and its path as the caller gave it."""

    kind: str
    folder: Path
    path: str


def find_targets(given: str) -> list[Target]:
    """Everything to check at `given` (which exists) and below it, sorted by path.

    A file stands for the folder that it belongs to. Links below `given` and hidden folders are
    not looked into, nor is anything inside a campaign.
    """
    given = given.rstrip("/") or "/"
    root = Path(given)
    if root.is_file():
        return _of_file(root, given)
    return list(_walk(root, given, 0))


def _of_file(file: Path, given: str) -> list[Target]:
    folder = os.path.dirname(given) or "."
    target = _target(file.parent, folder)
    return [] if target is None else [target]


def _walk(folder: Path, path: str, depth: int) -> Iterator[Target]:
    target = _target(folder, path)
    if target is not None:
        yield target
        if target.kind != SUBMISSION:
            return
    if depth >= MAX_DEPTH:
        return
    try:
        names = sorted(
            entry.name
            for entry in os.scandir(folder)
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        )
    except OSError:
        return
    for name in names:
        yield from _walk(folder / name, os.path.join(path, name), depth + 1)


def _target(folder: Path, path: str) -> Target | None:
    """What `folder` itself is, or None."""
    if _has(folder, _CAMPAIGN_FILES):
        return Target(CAMPAIGN, folder, path)
    if _has(folder, ("system.json",)):
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
