"""Writes datasets from what people have: shards or a tree, with a manifest.

First the images of the sources are listed, read, hashed and decoded, on all cores; what was found
is kept in a work folder in the destination, for a command that goes on after a kill. Then they are
written, each once. A shard (or, of a tree, an image) is written under a temporary name and renamed
when it is whole, so a file with its name is finished. One that lies there already is read, compared
with the manifest and kept. Every image is compared with the manifest on its way. Index and manifest
are written last: a folder without them is not finished.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fourmin.base.errors import FourminError
from fourmin.base.files import ensure_writable_folder, require_room
from fourmin.base.mishaps import told
from fourmin.datasets.cache import replace_folder
from fourmin.datasets.catalogue import Catalogue, Where, places
from fourmin.datasets.check import look_at
from fourmin.datasets.columns import Split
from fourmin.datasets.fashion_mnist import write_tree
from fourmin.datasets.images import printable, require_pillow
from fourmin.datasets.intake import official, take_in
from fourmin.datasets.manifest import MANIFEST_NAME, SPLITS, Manifest
from fourmin.datasets.manifest_image import map_manifest, write_image
from fourmin.datasets.pool import Progress, spread, unfollowed
from fourmin.datasets.report import NOTHING_KNOWN, CheckReport, Known
from fourmin.datasets.shards import (
    INDEX_NAME,
    Shard,
    before_image,
    holds_shards,
    lay_out,
    padding,
    read_samples,
    sample_name,
    write_index,
    writing_shard,
)

SHARD_BYTES = 256 << 20
"""How large a shard may grow unless told otherwise."""


WORK_NAME = ".fourmin-prepare"
Stage = Callable[[str], Progress]
_NAMED = 10
_FILES = 256
"""Images of a tree that a process writes at a time."""


@dataclass(frozen=True)
class PreparedData:
    """What was done: images and bytes in `folder`, in shards (0: a tree), some there already.

    `told` are lines on what was recognised, and on how it compares with what is known.
    """

    folder: Path
    images: int
    bytes: int
    seconds: float
    shards: int = 0
    kept: int = 0
    told: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "folder": str(self.folder), "seconds": round(self.seconds, 3)}


class _Place(NamedTuple):
    """Where the images come from (a tree, or the catalogue of what was read) and go to."""

    source: Path
    dest: Path
    image: Path
    """Of their manifest."""
    again: str


def prepare(
    sources: Sequence[Path],
    dest: Path,
    *,
    tree: bool = False,
    shard_bytes: int = SHARD_BYTES,
    workers: int | None = None,
    stage: Stage = lambda _: unfollowed,
    say: Callable[[str], None] = lambda _: None,
    known: Known = NOTHING_KNOWN,
) -> PreparedData:
    """Write the images of `sources` to `dest`, as shards or as a tree, with their manifest.

    The same images and `shard_bytes` give the same bytes. `stage` is told what begins, and gives
    what is told of its progress; `say` is told what is recognised and how it compares with the
    `known` datasets. Raises FourminError where no known form is recognised, something is missing or
    damaged, when `dest` holds other images, or cannot be written.
    """
    started = time.monotonic()
    _refuse_dest(sources, dest, tree)
    ensure_writable_folder(dest, "folder of the images")
    work, source = dest / WORK_NAME, sources[0]
    lines: list[str] = []
    image, again = work / "manifest", "run the same command again: it reads anew what has changed"
    workers = workers or len(os.sched_getaffinity(0))
    with _writing(dest):
        work.mkdir(exist_ok=True)
        if len(sources) == 1 and (source / MANIFEST_NAME).is_file():
            manifest = Manifest.load(source / MANIFEST_NAME)
            again = f"check the tree again with: fourmin data check {source}"
            lines = [f"tree {source.name}, with the manifest of its check"]
            say(lines[0])
        else:
            source = work / "catalogue"
            manifest, lines = _read(Catalogue(source), sources, work, workers, stage, say, known)
        write_image(manifest, image)
        # The columns are held once: what is made or read above goes, and processes map this.
        manifest = map_manifest(image)
        shards = lay_out(manifest, shard_bytes)
        if not tree:
            _refuse_others(dest, shards)
        pieces = [*_pieces_of_tree(manifest)] if tree else shards
        place, progress = _Place(source, dest, image, again), stage("writing")
        sizes = [sum(manifest.split(name).sizes) for name in SPLITS]
        images, done, kept = sum(len(manifest.split(name)) for name in SPLITS), 0, 0
        workers = min(workers, images // _FILES + 1 if tree else len(shards))
        for samples, before in spread(_take_on, place, pieces, workers, f"writing {dest}"):
            done, kept = done + samples, kept + before
            progress(done, images)
        manifest.write(dest / MANIFEST_NAME)
        if not tree:
            write_index(dest, manifest, shards)
        shutil.rmtree(work)
    size = sum(sizes) if tree else sum(shard.bytes for shard in shards)
    seconds, number = time.monotonic() - started, 0 if tree else len(shards)
    return PreparedData(dest, images, size, seconds, number, kept, tuple(lines), manifest.pins)


def _read(
    catalogue: Catalogue,
    sources: Sequence[Path],
    work: Path,
    workers: int,
    stage: Stage,
    say: Callable[[str], None],
    known: Known,
) -> tuple[Manifest, list[str]]:
    """The manifest of what the sources hold, and what is said of it. Raises FourminError."""
    require_pillow()
    taken = take_in(catalogue, sources, work, workers, stage("unpacking"))
    report, first = CheckReport(Path()), [*taken.told]
    for line in first:
        say(line)
    with ThreadPoolExecutor(1) as pool:
        claims = pool.submit(official, taken.sources.files(), known, taken.told)
        look_at(catalogue, report, workers, stage("reading"), "reading the images")
        about = {"claims": "the official archives"} if claims.result() else {}
    catalogue.sort(taken.named)
    report.settle(catalogue, known, about)
    if report.manifest is None:
        raise FourminError(
            f"{len(report.problems):,} images cannot be taken",
            "\n".join(f"{one.path}: {one.reason}" for one in report.problems[:_NAMED]),
            "fetch or unpack these again, then run the same command: what was read is kept",
        )
    more = [f"{note.count:,} images {note.text}" for note in report.notes.values()]
    more += taken.told[len(first) :] + report.beside_official()
    for line in more:
        say(line)
    return report.manifest, first + more


def _pieces_of_tree(manifest: Manifest) -> Iterator[Shard]:
    """The work, in pieces like shards without a name."""
    for name in SPLITS:
        images = len(manifest.split(name))
        for first in range(0, images, _FILES):
            yield Shard("", name, first, min(_FILES, images - first), 0)


def _refuse_dest(sources: Sequence[Path], dest: Path, tree: bool) -> None:
    """Raise FourminError where `dest` holds something else, or a source is not there or shards."""
    for source in sources:
        if not source.exists():
            raise FourminError(f"cannot find {source}", "there is no such file", "name one that is")
        if (source / INDEX_NAME).exists():
            raise FourminError(
                f"{source} holds shards of fourmin",
                "they are made already",
                f"check them with: fourmin data check {source}; use them with --data-dir {source}",
            )
    going_on = (dest / WORK_NAME).is_dir() and not dest.samefile(sources[0])
    if any((dest / name).exists() for name in SPLITS) and not (tree and going_on):
        raise FourminError(f"{dest} holds a tree of images", next_step="name another folder")
    if tree and holds_shards(dest):
        raise FourminError(f"{dest} holds shards", next_step="name another folder")


def prepare_fashion_mnist(
    source: Path, dest: Path, progress: Progress = unfollowed
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
def _manifest(image: Path, changed: int) -> Manifest:
    """The manifest of all pieces; mapped once in each process."""
    return map_manifest(image)


def _refuse_others(dest: Path, shards: list[Shard]) -> None:
    """Raise FourminError for shards in `dest` that this tree does not have, or a full disk."""
    present = {path.name for path in dest.glob("*.tar")}
    for name in sorted(present - {shard.name for shard in shards}):
        raise FourminError(
            f"{dest} holds {name}, which is not a shard of this tree",
            "it comes from another tree, or from another size of shards",
            "name an empty folder, or remove that file",
        )
    if present != {shard.name for shard in shards}:
        (dest / INDEX_NAME).unlink(missing_ok=True)
    for left_over in dest.glob(".*.tar.*"):
        left_over.unlink()
    needed = sum(shard.bytes for shard in shards if shard.name not in present)
    require_room(dest, needed, "the shards", "they need")


def _take_on(place: _Place, shard: Shard) -> tuple[int, int]:
    """Have a piece there, finished; its samples, and how many shards or files were there before."""
    manifest = _manifest(place.image, place.image.stat().st_mtime_ns)
    split, path = manifest.split(shard.split), place.dest / shard.name
    with _writing(place.dest):
        if not shard.name:
            return shard.samples, _write_files(place, shard, manifest)
        if path.exists():
            _verify(path, shard, split)
            return shard.samples, 1
        _write(place, shard, manifest)
    return shard.samples, 0


def _places(place: _Place, shard: Shard, manifest: Manifest) -> Iterator[tuple[int, Where]]:
    """The index of each image in its split, and where it lies, one at a time."""
    if not place.source.is_dir():
        before = len(manifest.split(SPLITS[0])) if shard.split == SPLITS[1] else 0
        found = places(place.source, before + shard.first, shard.samples)
        yield from zip(shard.indices(), found, strict=True)
        return
    folder, paths = place.source / shard.split, manifest.split(shard.split).paths
    for index in shard.indices():
        yield index, (os.fsencode(folder / paths[index]), 0, -1)


def _write_files(place: _Place, shard: Shard, manifest: Manifest) -> int:
    """Write a few images of a tree; how many of them were there already."""
    split, kept = manifest.split(shard.split), 0
    for index, where in _places(place, shard, manifest):
        path = place.dest / split.name / split.paths[index]
        if path.exists():
            if hashlib.sha256(path.read_bytes()).hexdigest() != split.sha256(index):
                raise _not_ours(path, "it has another SHA-256")
            kept += 1
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{path.name}.part"
        temporary.write_bytes(_read_image(where, split, index, place.again))
        os.replace(temporary, path)
    return kept


def _verify(path: Path, shard: Shard, split: Split) -> None:
    """Raise FourminError unless a shard that lies there is what would be written."""
    try:
        for sample in read_samples(path, shard, split):
            if sample.fault:
                raise FourminError(sample_name(shard, split, sample.number), sample.fault)
    except FourminError as error:
        raise _not_ours(path, ": ".join(filter(None, (error.what, error.why)))) from error
    except OSError as error:
        raise FourminError(f"cannot read {path}", error.strerror or str(error)) from error


def _not_ours(path: Path, why: str) -> FourminError:
    return FourminError(
        f"{path} is not what would be written there",
        why,
        "remove it, and it is written again; or name an empty folder",
    )


def _write(place: _Place, shard: Shard, manifest: Manifest) -> None:
    split = manifest.split(shard.split)
    with writing_shard(place.dest / shard.name) as file:
        for index, where in _places(place, shard, manifest):
            data = _read_image(where, split, index, place.again)
            file.write(before_image(split, index) + data + padding(len(data)))


def _read_image(where: Where, split: Split, index: int, again: str) -> bytes:
    file, at, size = where
    shown = os.fsdecode(file) if at == 0 else f"{split.name}/{split.paths[index]}"
    shown = printable(shown if at == 0 else f"{shown} in {os.fsdecode(file)}")
    with told(f"cannot read the image {shown}", again), open(file, "rb") as opened:
        opened.seek(at)
        data = opened.read(size)
    if hashlib.sha256(data).hexdigest() != split.sha256(index):
        raise FourminError(
            f"the image {shown} has changed", "the manifest lists another SHA-256", again
        )
    return data


def _writing(dest: Path) -> AbstractContextManager[None]:
    step = "make room or name another folder; what is finished is kept"
    return told(f"cannot write the images to {dest}", step)
