"""A proof: the states that a challenge asks for, in a tar file, packed here and read by a stranger.

Of each run it has the states before the segments that are asked for (that of epoch 0 anyone
computes) and the last one: `run-<i>/epoch-<e>.state`.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fourmin.base.errors import FourminError, list_names
from fourmin.campaign.keeping import state_bytes
from fourmin.launch.job import state_file
from fourmin.ledger.challenge import runs_to_replay, states_of
from fourmin.ledger.view import CampaignView

_PIECE = 1 << 20
_MOST_HEADER = 1 << 20
_NO_TAR = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)
"""What `tarfile` raises for somebody's file: the last three are of headers that extend others."""


def wanted_states(asked: Mapping[str, Any], view: CampaignView) -> dict[str, str]:
    """The SHA-256 that the log gives each state that a proof must have, by its name there."""
    runs, wanted = runs_to_replay(view), {}
    for number, epochs in asked["segments"].items():
        told = states_of(runs[int(number)].timeline)
        for epoch in sorted({*(one - 1 for one in epochs), epochs[-1]} - {0}):
            name = state_file(Path(), view.digest, int(number), epoch).relative_to(view.digest)
            wanted[name.as_posix()] = str(told.get(epoch, {}).get("sha256"))
    return wanted


@dataclass(frozen=True)
class Proof:
    """What will be packed: the files by their names in the proof, and how large it becomes."""

    folder: Path
    wanted: Mapping[str, str]
    size: int

    def pack(self, output: Path) -> None:
        """Raises FourminError for a state that is not the one of the log; nothing is left then."""
        unnamed = output.with_name(f".{output.name}.tmp")
        try:
            with tarfile.open(unnamed, "w", format=tarfile.USTAR_FORMAT) as tar:
                for name, digest in self.wanted.items():
                    info = tarfile.TarInfo(name)
                    info.size = (self.folder / name).stat().st_size
                    with (self.folder / name).open("rb") as file:
                        hashed = _Hashed(file)
                        tar.addfile(info, hashed)
                    _require(name, hashed.sha256.hexdigest(), digest)
            os.replace(unnamed, output)
        finally:
            unnamed.unlink(missing_ok=True)


class _Hashed:
    """A file whose bytes are hashed as they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.sha256.update(data)
        return data


def prepare_proof(asked: Mapping[str, Any], view: CampaignView, states: Path) -> Proof:
    """Look for the states below `states`. Raises FourminError where some are missing."""
    wanted, folder = wanted_states(asked, view), states / view.digest
    missing = [name for name in wanted if not (folder / name).is_file()]
    if missing:
        raise FourminError(
            f"{len(missing)} of {len(wanted)} states are not in {folder}",
            list_names(missing[:5]),
            "name the folder that --keep-states named",
        )
    blocks = (-(-(folder / name).stat().st_size // 512) + 1 for name in wanted)
    size = -(-(512 * (sum(blocks) + 2)) // tarfile.RECORDSIZE) * tarfile.RECORDSIZE
    return Proof(folder, wanted, size)


def unpack(proof: Path, asked: Mapping[str, Any], view: CampaignView, folder: Path) -> None:
    """Write the states of a proof to where a job looks for them below `folder`, each held to the
    log's hash. Raises FourminError for a proof that does not have them all.
    """
    left = wanted_states(asked, view)
    sizes = {
        number: state_bytes(run.configuration) + _MOST_HEADER
        for number, run in runs_to_replay(view).items()
        if run.configuration is not None
    }
    try:
        with tarfile.open(proof, "r:") as tar:
            for member in tar:
                run = member.name.partition("/")[0].removeprefix("run-")
                if member.name not in left or not member.isreg() or member.size > sizes[int(run)]:
                    raise FourminError(f"{proof} has {member.name!r}, which nobody asked for")
                source, sha = tar.extractfile(member), hashlib.sha256()
                path = folder / view.digest / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    while source and (data := source.read(_PIECE)):
                        sha.update(data)
                        file.write(data)
                _require(member.name, sha.hexdigest(), left.pop(member.name))
    except _NO_TAR as error:
        raise FourminError(f"{proof} is no proof", str(error)) from None
    if left:
        raise FourminError(f"{proof} lacks {len(left)} states", list_names([*left][:5]))


def _require(name: str, digest: str, wanted: str) -> None:
    if digest != wanted:
        raise FourminError(
            f"{name} is not the state of the log", f"{digest[:12]}, not {wanted[:12]}"
        )
