"""A submission as a reader sees it: one system's folder in `submissions/<submitter>/`."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fourmin.ledger.view import CampaignView, Document
from fourmin.results.folder import Contents, Fault, JsonFile, list_folder, read_bytes
from fourmin.ruleset import CURRENT

SYSTEM_FILE = "system.json"
DEPTH = 5
"""benchmark / campaign / run / file, below the system's folder."""


@dataclass
class SubmissionView:
    """`path` as findings name it, what lies there, and the campaigns below by relative path."""

    path: str
    contents: Contents
    system_bytes: bytes | None
    campaigns: dict[str, CampaignView]

    @classmethod
    def load(cls, folder: Path, path: str, campaigns: dict[str, CampaignView]) -> SubmissionView:
        """Read the system description; the campaigns were loaded before."""
        contents = list_folder(folder, DEPTH)
        data = read_bytes(folder / SYSTEM_FILE)
        faults = contents.faults
        if isinstance(data, str):
            faults = (*faults, Fault(data, SYSTEM_FILE, f"the file is {data}"))
        contents = Contents(contents.files, contents.folders, faults)
        return cls(path, contents, None if isinstance(data, str) else data, campaigns)

    def where(self, name: str) -> str:
        """The path of a file below, as findings name it."""
        return posixpath.join(self.path, name) if name else self.path

    @cached_property
    def system(self) -> Document | None:
        if self.system_bytes is None:
            return None
        return Document(JsonFile.parse(SYSTEM_FILE, self.system_bytes), "system", CURRENT)

    def outside_campaigns(self) -> list[str]:
        """Files, and faults' paths, that lie in no campaign's folder."""
        names = [*self.contents.files, *(fault.path for fault in self.contents.faults)]
        folders = tuple(f"{name}/" for name in self.campaigns)
        return [name for name in names if not name.startswith(folders)]
