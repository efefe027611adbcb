"""Writes the dataset `fractals` as shards, straight from what draws its images, on all cores.

A shard is written under a temporary name and renamed when it is whole, manifest and index come
last: a folder without them is not finished. A file in it says so, and the next command begins anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fourmin.base.errors import FourminError
from fourmin.base.files import ensure_writable_folder, require_room
from fourmin.base.installation import install
from fourmin.base.mishaps import told
from fourmin.datasets.manifest import BY_NAME, MANIFEST_NAME, SPLITS, ImageRow, Manifest
from fourmin.datasets.pool import Progress, spread, unfollowed
from fourmin.datasets.prepare import PreparedData
from fourmin.datasets.shards import (
    END,
    GENERATING,
    INDEX_NAME,
    Shard,
    class_member,
    member_header,
    padding,
    write_index,
    writing_shard,
)

IMAGES_A_SHARD = 500
MEAN_BYTES = 116_000
"""Of an image in a shard, with its headers: a little more than of the whole set."""


class Size(NamedTuple):
    """Of a set: classes, and images a class in each split. An image is the same in every set."""

    classes: int = 100
    train: int = 1300
    val: int = 50


def generate_fractals(
    dest: Path, size: Size, workers: int | None = None, progress: Progress = unfollowed
) -> PreparedData:
    """Write the first classes and images of `fractals` to `dest`, which is empty or not there.

    The same size gives the same bytes. Raises FourminError where something else is in `dest`, it
    has no room or cannot be written, or images would be others here than elsewhere.
    """
    started = time.monotonic()
    with told("images cannot be generated here", install("train"), ImportError):
        from fourmin.datasets.fractals import require_known_answer
    require_known_answer()
    images = size.classes * (size.train + size.val)
    pieces = [
        Shard(f"{split}-{number:06d}.tar", split, first, min(IMAGES_A_SHARD, end - first), 0)
        for split, each in zip(SPLITS, size[1:], strict=True)
        for end in (size.classes * each,)
        for number, first in enumerate(range(0, end, IMAGES_A_SHARD))
    ]
    workers = min(workers or len(os.sched_getaffinity(0)), len(pieces))
    written, done = [], 0
    step = "make room, and run the same command again"
    with told(f"cannot write the images to {dest}", step), _alone(dest):
        require_room(dest, images * MEAN_BYTES, "the shards", "they need")
        for one in spread(_write, (dest, size), pieces, workers, f"writing {dest}"):
            written.append(one)
            done += one[0].samples
            progress(done, images)
        written.sort(key=lambda one: one[0].name)
        shards = [shard for shard, _ in written]
        rows = (row for _, images_of_shard in written for row in images_of_shard)
        names = [_class_name(label) for label in range(size.classes)]
        manifest = Manifest.from_sorted(rows, names, {"order": BY_NAME})
        manifest.write(dest / MANIFEST_NAME)
        write_index(dest, manifest, shards)
        (dest / GENERATING).unlink()
    total = sum(shard.bytes for shard in shards)
    seconds = time.monotonic() - started
    digests = {name: manifest.digest(name) for name in SPLITS}
    return PreparedData(
        dest, images, total, seconds, len(shards), pins=manifest.pins, digests=digests
    )


@contextmanager
def _alone(dest: Path) -> Iterator[None]:
    """Have `dest` there, without what a command left that did not end, and for this one alone."""
    mark = dest / GENERATING
    if not mark.exists() and dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise FourminError(
            f"{dest} is not empty", "a dataset is written whole", "name a folder that is not there"
        )
    ensure_writable_folder(dest, "folder of the images")
    with open(mark, "wb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = "another command is generating images there"
            raise FourminError(f"{dest} is taken", why, "wait for its end") from None
        except OSError:
            pass  # of a file system without locks
        for pattern in (INDEX_NAME, MANIFEST_NAME, "*.tar", ".*.tar.*"):
            for left in dest.glob(pattern):
                left.unlink()
        yield


def _class_name(label: int) -> str:
    return f"{label:04d}"


def _write(to: tuple[Path, Size], piece: Shard) -> tuple[Shard, list[ImageRow]]:
    """Draw and write the images of one shard; it with its bytes, and what the manifest says."""
    from fourmin.datasets.fractals import draw, encode

    (dest, whole), rows, size = to, [], len(END)
    with writing_shard(dest / piece.name) as file:
        for sample in piece.indices():
            label, index = divmod(sample, getattr(whole, piece.split))
            pixels = draw(label, piece.split, index)
            data = encode(pixels)
            size += file.write(
                class_member(sample, label)
                + member_header(f"{sample:09d}.jpg", len(data))
                + data
                + padding(len(data))
            )
            path, digest = f"{_class_name(label)}/{index:05d}.jpg", hashlib.sha256(data).digest()
            height, width = pixels.shape
            rows.append(ImageRow(piece.split, path, len(data), digest, width, height))
    return replace(piece, bytes=size), rows
