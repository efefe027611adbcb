"""The check of images, done once before any run: read, hash and decode every file of a tree.

Refused (problems): a missing split, a class without an image, classes that differ between the
splits, a symbolic link that leaves the tree, a name that cannot stand in a manifest, a file
that is empty, cannot be read, is neither JPEG nor PNG by content or does not decode to its
end, and a file that lies in both splits by SHA-256. A clean tree gets its manifest.

Counted (notes), because every loader of fourmin decodes them to the same RGB image: PNG under
a JPEG name and the reverse (ImageNet has one), CMYK (ImageNet has 22), EXIF orientation other
than upright (it is ignored in training, as in published training code), duplicates within a
split, and files that are ignored. Grey images are counted too.

Of shards every sample is read and decoded likewise, and every byte compared with what the manifest
and the format ask for: what is not so is refused, the shard and the sample named.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from fourmin.base.errors import FourminError
from fourmin.datasets.catalogue import Catalogue, Found
from fourmin.datasets.images import Scanned, printable, require_pillow, scan_image
from fourmin.datasets.manifest import MANIFEST_NAME, SPLITS, Manifest, is_image_name, name_fault
from fourmin.datasets.pool import Progress, spread, unfollowed
from fourmin.datasets.report import NOTHING_KNOWN, CheckReport, Known
from fourmin.datasets.shards import ShardIndex, read_samples, require_finished, sample_name

_CHUNK = 128
IGNORED = "are ignored: not an image of a class by place and name"
NOT_READ = "is neither a JPEG nor a PNG by its name, and no loader here decodes it"
OTHER_IMAGES = (".webp", ".bmp", ".gif", ".tif", ".tiff", ".jp2", ".jxl", ".heic", ".avif", ".ppm")
_LEAVES = "a symbolic link that leaves the tree"
_JUNK = ("__macosx", "lost+found", "@eadir", "$recycle.bin")


def check_tree(
    data_dir: Path,
    workers: int | None = None,
    progress: Progress = unfollowed,
    *,
    known: Known = NOTHING_KNOWN,
) -> CheckReport:
    """Check the tree in `data_dir` with `workers` processes (default: every core).

    Of `known` datasets the one that is expected may list files that are in both splits. Writes
    `fourmin-manifest.tsv` into the tree when there is no problem. Raises FourminError when
    `data_dir` is no folder, the manifest cannot be written or Pillow is missing.
    """
    require_pillow()
    if not data_dir.is_dir():
        raise FourminError(
            f"{data_dir} is not a folder",
            "the tree to check holds train/<class>/ and val/<class>/",
            "give the folder that contains train and val; any other form of a dataset goes through "
            "`fourmin data prepare SOURCE... DIR`",
        )
    started = time.monotonic()
    report, catalogue = CheckReport(data_dir), Catalogue()
    catalogue.add(_list_tree(data_dir, report))
    look_at(catalogue, report, workers, progress, f"the check of {data_dir}")
    catalogue.sort()
    report.settle(catalogue, known, {})
    if report.manifest is not None:
        report.manifest_path = data_dir / MANIFEST_NAME
        report.manifest.as_before(report.manifest_path).write(report.manifest_path)
    report.seconds = time.monotonic() - started
    return report


def check_shards(
    data_dir: Path,
    workers: int | None = None,
    progress: Progress = unfollowed,
    *,
    known: Known = NOTHING_KNOWN,
) -> CheckReport:
    """Check the shards in `data_dir` with `workers` processes (default: every core).

    `known` as `check_tree` has it. The manifest is compared with and not written;
    the report has it when there is no problem. Raises FourminError when manifest or index
    cannot be used or Pillow is missing.
    """
    require_pillow()
    require_finished(data_dir)
    started = time.monotonic()
    _load.cache_clear()
    manifest, index = _load(data_dir)
    report, catalogue = CheckReport(data_dir, shards=len(index.shards)), Catalogue()
    images, done = sum(len(manifest.split(name)) for name in SPLITS), 0
    workers = min(len(index.shards), workers or len(os.sched_getaffinity(0)))
    numbers = range(len(index.shards))
    for number, found in spread(
        _scan_shard, data_dir, numbers, workers, f"the check of {data_dir}"
    ):
        shard = index.shards[number]
        catalogue.add_seen(os.fsencode(shard.name), found)
        for one in found:
            if one.row is None:
                report.problem(one.name, one.problem)
        done += shard.samples
        progress(done, images)
    catalogue.sort()
    report.settle(catalogue, known, {})
    seen, report.manifest = report.manifest, None
    if seen and (seen.class_names, seen.splits) != (manifest.class_names, manifest.splits):
        what = "lists other widths, heights or classes than the images have"
        report.problem(MANIFEST_NAME, what)
    elif seen:
        report.manifest, report.manifest_path = manifest, data_dir / MANIFEST_NAME
    report.seconds = time.monotonic() - started
    return report


def look_at(
    catalogue: Catalogue,
    report: CheckReport,
    workers: int | None,
    progress: Progress,
    purpose: str,
) -> None:
    """Read, hash and decode every image of `catalogue` that was not looked at yet."""
    total = catalogue.count()
    left = sum(map(len, catalogue.unseen(_CHUNK)))
    done = total - left
    workers = 1 if left <= _CHUNK else workers or len(os.sched_getaffinity(0))
    for found in spread(_scan_chunk, None, catalogue.unseen(_CHUNK), workers, purpose):
        catalogue.saw(found)
        for _, scanned in found:
            if scanned.row is None:
                report.problem(scanned.name, scanned.problem)
        done += len(found)
        progress(done, total)


def is_junk(name: str) -> bool:
    """Whether systems leave a file or folder of this name beside anybody's."""
    return name.startswith(".") or name.lower() in _JUNK


def _leaves(path: str, root: str) -> bool:
    """Whether a symbolic link points out of the tree (or to nothing)."""
    target = os.path.realpath(path)
    return os.path.commonpath([target, root]) != root or not os.path.exists(target)


def _list_tree(data_dir: Path, report: CheckReport) -> Iterator[Found]:
    """Every image, without opening any."""
    root = os.path.realpath(data_dir)
    classes: dict[str, set[str]] = {}
    for split in SPLITS:
        base = os.path.join(root, split)
        if not os.path.isdir(base):
            report.problem(split, "the folder is missing")
            continue
        if _leaves(base, root):
            report.problem(split, _LEAVES)
            continue
        classes[split] = set()
        for folder in _listing(base, split, report):
            found = _list_class(root, split, folder, report)
            if found is not None:
                classes[split].add(folder.name)
                yield from found
    if len(classes) == len(SPLITS):
        for name in sorted(classes["train"] ^ classes["val"]):
            has, lacks = SPLITS if name in classes["train"] else SPLITS[::-1]
            what = f"the class is in {has} but not in {lacks}"
            report.problem(f"{lacks}/{printable(name)}", what)
    if not any(classes.values()) and not report.problems:
        report.problem(".", "there is no class folder in train and val")


def _listing(folder: str, name: str, report: CheckReport) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        report.problem(name, f"cannot be listed: {error.strerror or error}")
        return []


def _list_class(
    root: str, split: str, folder: os.DirEntry[str], report: CheckReport
) -> list[Found] | None:
    """The images of one class folder; None when `folder` is not one that can be used."""
    name = f"{split}/{printable(folder.name)}"
    if folder.is_symlink() and _leaves(folder.path, root):
        report.problem(name, _LEAVES)
        return None
    if not folder.is_dir() or is_junk(folder.name):
        report.note(IGNORED, name)
        return None
    fault = name_fault(folder.name)
    if fault:
        report.problem(name, fault)
        return None
    found = []
    for entry in _listing(folder.path, name, report):
        path = f"{name}/{printable(entry.name)}"
        if entry.is_symlink() and _leaves(entry.path, root):
            report.problem(path, _LEAVES)
        elif entry.name.lower().endswith(OTHER_IMAGES) and not is_junk(entry.name):
            report.problem(path, NOT_READ)
        elif not is_image_name(entry.name) or is_junk(entry.name) or not entry.is_file():
            report.note(IGNORED, path)
        elif fault := name_fault(entry.name):
            report.problem(path, fault)
        else:
            found.append(Found(split, os.fsencode(entry.path), 0, -1, 0, entry.name, folder.name))
    if not found:
        report.problem(name, "the class has no image")
    return found


def _scan_chunk(_: None, chunk: Sequence[Any]) -> list[tuple[int, Scanned]]:
    """Look at images as the catalogue gives them."""
    found = []
    with ExitStack() as stack:
        opened: tuple[bytes, BinaryIO] | None = None
        for one, split, label, name, file, at, size in chunk:
            path = f"{label}/{name or ''}"
            shown = printable(f"{split}/{path}" if name else f"{os.fsdecode(file)}, byte {at}")
            try:
                if opened is None or opened[0] != file:
                    stack.close()
                    opened = file, stack.enter_context(open(file, "rb"))
                opened[1].seek(at)
                data = opened[1].read(size)
            except OSError as error:
                fault = f"cannot be read: {error.strerror or error}"
                found.append((one, Scanned(shown, None, fault)))
            else:
                found.append((one, scan_image(data, shown, split, path)))
    return found


@cache
def _load(data_dir: Path) -> tuple[Manifest, ShardIndex]:
    """Manifest and index of a folder; read once in each process."""
    manifest = Manifest.load(data_dir / MANIFEST_NAME)
    return manifest, ShardIndex.load(data_dir, manifest)


def _scan_shard(data_dir: Path, number: int) -> tuple[int, list[Scanned]]:
    manifest, index = _load(data_dir)
    shard = index.shards[number]
    split = manifest.split(shard.split)
    found = []
    try:
        for sample in read_samples(data_dir / shard.name, shard, split):
            name = printable(sample_name(shard, split, sample.number))
            if sample.fault:
                found.append(Scanned(name, None, sample.fault))
            else:
                found.append(scan_image(sample.data, name, split.name, split.paths[sample.number]))
    except FourminError as error:
        found.append(Scanned(shard.name, None, error.what))
    except OSError as error:
        found.append(Scanned(shard.name, None, f"cannot be read: {error.strerror or error}"))
    return number, found
