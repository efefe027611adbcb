"""Writes datasets: Fashion-MNIST's tree, and the shards of any tree.

Shards are written on all cores, each once, and the work goes on after a kill. A shard is written
under a temporary name and renamed when it is whole and on disk, so a file with a shard's name is
finished. One that lies there already is read and compared with the manifest, and kept. Every
image is compared with the manifest on its way. The index is written last: a folder without one
is not finished.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fourmin.base.errors import FourminError
from fourmin.base.files import ensure_writable_folder, sync_folder, write_durably
from fourmin.base.mishaps import told
from fourmin.base.text import command
from fourmin.datasets.cache import replace_folder
from fourmin.datasets.columns import Split
from fourmin.datasets.fashion_mnist import write_tree
from fourmin.datasets.manifest import MANIFEST_NAME, SPLITS, Manifest
from fourmin.datasets.pool import Progress, spread
from fourmin.datasets.shards import (
    END,
    INDEX_NAME,
    Shard,
    before_image,
    holds_shards,
    lay_out,
    padded,
    read_samples,
    sample_name,
    write_index,
)

SHARD_BYTES = 256 << 20
"""How large a shard may grow unless told otherwise."""


@dataclass(frozen=True)
class PreparedData:
    """What was done: images and bytes in `folder`, in shards (0: a tree), some there already."""

    folder: Path
    images: int
    bytes: int
    seconds: float
    shards: int = 0
    kept: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "folder": str(self.folder), "seconds": round(self.seconds, 3)}


class _Place(NamedTuple):
    """Where shards come from and go to; small enough to be sent with each piece of work."""

    source: Path
    dest: Path
    shard_bytes: int


def prepare_shards(
    source: Path,
    dest: Path,
    *,
    shard_bytes: int = SHARD_BYTES,
    workers: int | None = None,
    progress: Progress | None = None,
) -> PreparedData:
    """Write the shards of the tree in `source` to `dest`, with manifest and index.

    The same tree and `shard_bytes` give the same bytes. Raises FourminError when the tree has
    no manifest or differs from it, when `dest` holds other shards, or cannot be written.
    """
    started = time.monotonic()
    if holds_shards(source):
        raise FourminError(f"{source} holds shards", "they are made from a tree of images")
    if any((dest / name).exists() for name in SPLITS):
        raise FourminError(f"{dest} holds a tree of images", next_step="name another folder")
    _plan.cache_clear()
    manifest, shards = _plan(source, shard_bytes)
    ensure_writable_folder(dest, "folder of the shards")
    _refuse_others(dest, shards)
    if not all((dest / shard.name).exists() for shard in shards):
        (dest / INDEX_NAME).unlink(missing_ok=True)
    for left_over in dest.glob(".*.tar.*"):
        left_over.unlink()
    images, done, kept = sum(len(manifest.split(name)) for name in SPLITS), 0, 0
    place = _Place(source, dest, shard_bytes)
    workers = min(len(shards), workers or len(os.sched_getaffinity(0)))
    purpose = f"writing the shards of {source}"
    for number, was_there in spread(_take_on, place, range(len(shards)), workers, purpose):
        done += shards[number].samples
        kept += was_there
        if progress is not None:
            progress(done, images)
    with _writing(dest):
        write_durably(dest / MANIFEST_NAME, (source / MANIFEST_NAME).read_bytes())
        write_index(dest, manifest, shards)
    total = sum(shard.bytes for shard in shards)
    return PreparedData(dest, images, total, time.monotonic() - started, len(shards), kept)


def prepare_fashion_mnist(
    source: Path, dest: Path, progress: Progress | None = None
) -> PreparedData:
    """Write Fashion-MNIST's tree from its four files in `source` to `dest`, whole or not at all.

    Raises FourminError when `dest` is not empty or cannot be written, or a file is another.
    """
    started = time.monotonic()
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise FourminError(
            f"{dest} is not empty", "a dataset is written whole", "name a folder that is not there"
        )
    with _writing(dest):
        dest.parent.mkdir(parents=True, exist_ok=True)
        replace_folder(dest, lambda folder: write_tree(source, folder, progress))
    manifest = Manifest.load(dest / MANIFEST_NAME)
    splits = [manifest.split(name) for name in SPLITS]
    total = sum(sum(split.sizes) for split in splits)
    return PreparedData(dest, sum(map(len, splits)), total, time.monotonic() - started)


@cache
def _plan(source: Path, shard_bytes: int) -> tuple[Manifest, list[Shard]]:
    """Manifest and shards of a tree; made once in each process."""
    manifest = Manifest.load(source / MANIFEST_NAME)
    return manifest, lay_out(manifest, shard_bytes)


def _refuse_others(dest: Path, shards: list[Shard]) -> None:
    """Raise FourminError for shards in `dest` that this tree does not have, or a full disk."""
    present = {path.name for path in dest.glob("*.tar")}
    for name in sorted(present - {shard.name for shard in shards}):
        raise FourminError(
            f"{dest} holds {name}, which is not a shard of this tree",
            "it comes from another tree, or from another size of shards",
            "name an empty folder, or remove that file",
        )
    needed = sum(shard.bytes for shard in shards if shard.name not in present)
    free = shutil.disk_usage(dest).free
    if needed > free:
        raise FourminError(
            f"there is no room for the shards in {dest}",
            f"they need {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free",
            "name a folder on another disk",
        )


def _take_on(place: _Place, number: int) -> tuple[int, bool]:
    """Have one shard there, finished; whether it was there already."""
    manifest, shards = _plan(place.source, place.shard_bytes)
    shard = shards[number]
    split = manifest.split(shard.split)
    path = place.dest / shard.name
    if path.exists():
        _verify(path, shard, split)
        return number, True
    with _writing(place.dest):
        _write(place, shard, split)
    return number, False


def _verify(path: Path, shard: Shard, split: Split) -> None:
    """Raise FourminError unless a shard that lies there is what would be written."""
    try:
        for sample in read_samples(path, shard, split):
            if sample.fault:
                raise FourminError(sample_name(shard, split, sample.number), sample.fault)
    except FourminError as error:
        raise FourminError(
            f"{path} is not what would be written there",
            ": ".join(filter(None, (error.what, error.why))),
            "remove it, and it is written again; or name an empty folder",
        ) from error


def _write(place: _Place, shard: Shard, split: Split) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{shard.name}.", dir=place.dest)
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:
            for index in shard.indices():
                data = _read_image(place.source, split, index)
                file.write(before_image(split, index) + data + bytes(padded(len(data)) - len(data)))
            file.write(END)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp lets nobody but the owner read it.
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, place.dest / shard.name)
        sync_folder(place.dest)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _read_image(source: Path, split: Split, index: int) -> bytes:
    path = source / split.name / split.paths[index]
    step = f"check the tree with: {command('data', 'check', source)}"
    with told(f"cannot read the image {path}", step):
        data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != split.sha256(index):
        raise FourminError(
            f"the image {path} has changed",
            "the manifest lists another SHA-256",
            f"check the tree again with: {command('data', 'check', source)}",
        )
    return data


def _writing(dest: Path) -> AbstractContextManager[None]:
    step = "make room or name another folder; what is finished is kept"
    return told(f"cannot write the images to {dest}", step)
