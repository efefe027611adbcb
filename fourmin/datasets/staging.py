"""Copying a dataset to a folder of this node, tree or shards, with nothing else beside it."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from fourmin.base.errors import FourminError
from fourmin.base.files import require_room, require_writable
from fourmin.datasets.manifest import MANIFEST_NAME, SPLITS, Manifest
from fourmin.datasets.shards import INDEX_NAME, ShardIndex, holds_shards

_PIECE = 256
"""Files that a thread copies at a time."""


class Copied(NamedTuple):
    files: int
    bytes: int


def staged_folder(stage: Path, campaign: str, run: int) -> Path:
    """Where a run of a campaign (by digest) has its copy below `stage`."""
    return stage / f"{_prefix(campaign)}{run}"


def left_behind(stage: Path, campaign: str) -> list[Path]:
    """The copies of this campaign below `stage`: where none of its runs is on, a kill left them."""
    return sorted(stage.glob(f"{_prefix(campaign)}*"))


def require_room_for_copy(stage: Path, manifest: Manifest, campaign: str = "") -> None:
    """Raise FourminError unless `stage` can be written and has room for the images.

    What a killed run of `campaign` left there makes room for the next one.
    """
    require_writable(stage, "staging folder")
    if not (campaign and left_behind(stage, campaign)):
        needed = sum(sum(manifest.split(name).sizes) for name in SPLITS)
        require_room(stage, needed, "the dataset", "its images have", "--stage")


def _prefix(campaign: str) -> str:
    return f"fourmin-{campaign[:16]}-run-"


def copy_dataset(source: Path, manifest: Manifest, dest: Path, threads: int) -> Copied:
    """Copy the images that `manifest`, that of `source`, lists, in `threads` threads, and what
    describes them. `dest` must not exist. Raises FourminError.
    """
    names = [MANIFEST_NAME]
    if holds_shards(source):
        names += [INDEX_NAME, *(s.name for s in ShardIndex.load(source, manifest).shards)]
        folders = ["."]
    else:
        names += [f"{name}/{path}" for name in SPLITS for path in manifest.split(name).paths]
        folders = [f"{split}/{label}" for split in SPLITS for label in manifest.class_names]

    def copy(piece: list[str]) -> int:
        for name in piece:
            shutil.copyfile(source / name, dest / name)
        return sum(os.stat(dest / name).st_size for name in piece)

    try:
        dest.mkdir(parents=True)
        for folder in folders:
            (dest / folder).mkdir(parents=True, exist_ok=True)
        size = max(1, min(_PIECE, len(names) // threads))
        pieces = [names[at : at + size] for at in range(0, len(names), size)]
        with ThreadPoolExecutor(threads, thread_name_prefix="fourmin-stage") as pool:
            return Copied(len(names), sum(pool.map(copy, pieces)))
    except OSError as error:
        shutil.rmtree(dest, ignore_errors=True)
        raise FourminError(
            f"cannot copy {source} to {dest}",
            str(error),
            "name another folder with --stage, or leave it out",
        ) from error
