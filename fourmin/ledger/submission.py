"""Submissions as a reader sees them: what lies below a root of them, and each system's folder."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fourmin.ledger.audits import AuditFile
from fourmin.ledger.view import CampaignView, Document, Placed
from fourmin.results.folder import list_folder, read_bytes
from fourmin.results.names import MAX_DROPPING_BYTES, is_dropping, wrong_folder_name
from fourmin.results.places import AUDITS, LEVELS, SIGNERS_FILE, SYSTEM_FILE, Place, misfit
from fourmin.ruleset import CURRENT


@dataclass(frozen=True)
class PackageView(Placed):
    """A folder whose paths follow the grammar of `places`, outside of campaigns.

    `misfits` are paths below it, each with why it does not belong there; `signers` the files of
    keys, each with its submitter (None where only a caller above could tell) and its bytes, or the
    kind of fault for which it cannot be read; `audits` those of auditors.
    """

    path: str
    misfits: tuple[tuple[str, str], ...]
    droppings: tuple[str, ...]
    signers: tuple[tuple[str, str | None, bytes | str], ...] = ()
    audits: tuple[AuditFile, ...] = ()

    @classmethod
    def load(
        cls,
        folder: Path,
        path: str,
        grammar: str,
        place: Place,
        campaigns: Collection[str],
        audits: Collection[AuditFile] = (),
    ) -> PackageView:
        """Look at all names that lie in no campaign; `campaigns` are relative to the folder.
        `audits` are the files of auditors about campaigns beside it.
        """
        level, signers = len(place), []
        here = {one.name: one for one in audits if one.folder == os.path.abspath(folder)}
        contents = list_folder(folder, len(LEVELS) + 1 - level, campaigns)
        droppings, misfits = [], [(fault.path, fault.message) for fault in contents.faults]
        for name in contents.folders:
            misfits.append((name, wrong_folder_name(posixpath.basename(name))))
        for name in contents.files:
            base, depth = posixpath.basename(name), level + name.count("/")
            size = os.lstat(folder / name).st_size
            if is_dropping(base) and size <= MAX_DROPPING_BYTES:
                droppings.append(name)
            else:
                why = misfit(grammar, depth, base, size)
                misfits.append((name, why))
                if grammar == AUDITS and depth and not why:
                    lone = AuditFile(
                        "", name, wrong="no campaign among the submissions has this plan"
                    )
                    here.setdefault(name, lone)
                if base == SIGNERS_FILE and not why:
                    data = read_bytes(folder / name)
                    signers.append((name, (*place, *name.split("/"))[0], data))
        wrong = sorted((name, why) for name, why in misfits if why)
        said = tuple(here[name] for name in sorted(here))
        return cls(path, tuple(wrong), tuple(sorted(droppings)), tuple(signers), said)


@dataclass
class SubmissionView(Placed):
    """One system's folder in a submitter's: `path` as findings name it, its place below the root,
    and the campaigns below by relative path.
    """

    path: str
    place: Place
    system_bytes: bytes | None
    unreadable: str
    """The kind of fault for which the description that is there cannot be read."""
    campaigns: dict[str, CampaignView]

    @classmethod
    def load(
        cls, folder: Path, path: str, place: Place, campaigns: dict[str, CampaignView]
    ) -> SubmissionView:
        """Read the system description; the campaigns were loaded before."""
        file = folder / SYSTEM_FILE
        data = read_bytes(file) if os.path.lexists(file) else ""
        if isinstance(data, str):
            return cls(path, place, None, data, campaigns)
        return cls(path, place, data, "", campaigns)

    @property
    def home(self) -> str:
        """The path of the description, which findings are about that name no other file."""
        return self.where(SYSTEM_FILE)

    @cached_property
    def system(self) -> Document | None:
        """The description, None where there is none that can be read."""
        if self.system_bytes is None:
            return None
        return Document(SYSTEM_FILE, self.system_bytes, "system", CURRENT)
