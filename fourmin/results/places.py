"""What may lie where below a root of submissions, and which folders are such roots.

    README.md
    <submitter>/allowed_signers
    <submitter>/<system>/system.json
    <submitter>/<system>/<benchmark>/<campaign>/...

A root is a folder `submissions`. A copy of one may have any name, so what lies below tells as
well: descriptions of systems, and campaigns in the place that their plan names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fourmin.base.values import mapping
from fourmin.results.folder import MAX_JSON_BYTES, JsonFile, read_bytes

SUBMISSIONS = "submissions"
AUDITS = "audits"
SYSTEM_FILE = "system.json"
SIGNERS_FILE = "allowed_signers"
MAX_SIGNERS_BYTES = 1 << 16
MAX_AUDIT_BYTES = 1 << 18
LEVELS = ("submitter", "system", "benchmark", "name")
"""What each folder from the root to a campaign is called after: fields of the plan."""

Place: TypeAlias = tuple["str | None", ...]
"""The names from a root down to a folder; None for one above what the caller named."""

_ADMITTED: Mapping[str, Mapping[int, Mapping[str, int]]] = {
    SUBMISSIONS: {
        0: {r"README\.md": 1 << 20, r"\.gitkeep": 0},
        1: {SIGNERS_FILE: MAX_SIGNERS_BYTES},
        2: {r"system\.json": 1 << 16},
    },
    AUDITS: {
        0: {r"README\.md": 1 << 20, r"\.gitkeep": 0},
        1: {r"[0-9a-f]{64}(\.challenge)?\.json": MAX_AUDIT_BYTES},
    },
}
"""By folder and level: patterns of the files there, with the most bytes of each."""


def misfit(grammar: str, level: int, name: str, size: int) -> str:
    """Why a file outside of campaigns does not belong `level` folders below the root of
    `submissions` or `audits`; empty where it does.
    """
    for pattern, most in _ADMITTED[grammar].get(level, {}).items():
        if re.fullmatch(pattern, name):
            return "" if size <= most else f"{size:,} bytes, of which {most:,} may be"
    return f"a file that does not belong into {grammar}"


@dataclass(frozen=True)
class Root:
    """A root of submissions, by its absolute path, or what of it lies below `scope`.

    The first `unknown` names below it say nothing: the caller named a copy of a folder in it.
    """

    path: str
    scope: str
    unknown: int = 0

    def place(self, path: str) -> Place | None:
        """Where `path` lies below it; None where it lies elsewhere."""
        names = _below(self.path, path)
        if names is None or _below(self.scope, path) is None:
            return None
        return (None,) * min(self.unknown, len(names)) + names[self.unknown :]


def find_roots(top: str, campaigns: Collection[str], systems: Collection[str]) -> list[Root]:
    """The roots in which `campaigns` and described `systems` lie, all found at or below `top`.

    Paths are absolute. A root may lie above `top`. None lies in another one.
    """
    plans = {campaign: _said(campaign) for campaign in campaigns}
    named = (_named(top, path, plans.get(path, {})) for path in (*campaigns, *systems))
    planned = (_planned(top, path, plan) for path, plan in plans.items())
    paths = _outermost(path for path in (*named, *planned) if path)

    described = [system for system in systems if _describes(system)]
    for path in _outermost(_above(system, 2) for system in described):
        apart = all(_below(one, path) is None and _below(path, one) is None for one in paths)
        if apart and _below(top, path) is not None and _holds(path, 4, campaigns):
            paths.append(path)
    roots = [Root(path, path) for path in paths]

    left = [one for one in systems if all(root.place(one) is None for root in roots)]
    if any(_above(one, 1) == top for one in left) and _holds(top, 3, campaigns):
        return [*roots, Root(_above(top, 1), top, 1)]
    return [*roots, *(Root(_above(one, 2), one, 2) for one in left)]


def _named(top: str, path: str, plan: Mapping[str, Any]) -> str | None:
    """The folder `submissions` that `path` lies in; a repository of that name is none."""
    inner = _below(top, path) or ()
    within = [_above(path, up) for up in range(len(inner), 0, -1)]
    outer = [_above(top, up) for up in range(1, len(LEVELS) + 1)]
    for folder in (*within, *outer):
        if os.path.basename(folder) != SUBMISSIONS or _is_checkout(folder):
            continue
        names = _below(folder, path) or ()
        fits = sum(plan.get(level) == name for level, name in zip(LEVELS[:3], names, strict=False))
        system = os.path.join(folder, *names[:2], SYSTEM_FILE)
        # Somebody may work in a folder of this name: above what was named, more must fit.
        if folder in within or os.path.lexists(system) or (len(names) == len(LEVELS) and fits):
            return folder
    return None


def _planned(top: str, path: str, plan: Mapping[str, Any]) -> str | None:
    """The folder below which a campaign lies where its plan says, or nearly so."""
    root = _above(path, len(LEVELS))
    names = _below(root, path) or ()
    fits = [plan.get(level) == name for level, name in zip(LEVELS, names, strict=False)]
    if len(fits) < len(LEVELS) or not (fits[0] and fits[1]):
        return None
    # Somebody's folders may be called so by chance: above what was named, nothing else is there.
    certain = _below(top, root) is not None or (all(fits) and _only_folders(top))
    return root if certain else None


def _only_folders(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return all(one.is_dir() and not one.name.startswith(".") for one in entries)
    except OSError:
        return False


def _holds(root: str, depth: int, campaigns: Iterable[str]) -> bool:
    """Whether most of the campaigns below `root` lie as deep as they would below a root."""
    below = [names for one in campaigns if (names := _below(root, one)) is not None]
    return 2 * sum(len(names) == depth for names in below) > len(below) and not _is_checkout(root)


def _is_checkout(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, ".git"))


def _describes(system: str) -> bool:
    """Whether the file is this project's description of a system, whatever else it is."""
    data = read_bytes(Path(system, SYSTEM_FILE), MAX_JSON_BYTES)
    return isinstance(data, bytes) and b'"schema_version"' in data and b'"system_name"' in data


def _said(campaign: str) -> Mapping[str, Any]:
    """What a campaign.json says, if it is JSON at all."""
    data = read_bytes(Path(campaign, "campaign.json"), MAX_JSON_BYTES)
    return {} if isinstance(data, str) else mapping(JsonFile("campaign.json", data).value)


def _outermost(paths: Iterable[str]) -> list[str]:
    found: list[str] = []
    for path in sorted(set(paths), key=lambda path: (path.count("/"), path)):
        if all(_below(one, path) is None for one in found):
            found.append(path)
    return found


def _above(path: str, levels: int) -> str:
    for _ in range(levels):
        path = os.path.dirname(path)
    return path


def _below(folder: str, path: str) -> tuple[str, ...] | None:
    """The names from `folder` down to `path`; None where it lies elsewhere."""
    if path == folder:
        return ()
    prefix = folder.rstrip("/") + "/"
    return tuple(path.removeprefix(prefix).split("/")) if path.startswith(prefix) else None
