"""The check of an image tree, done once before any run: read, hash and decode every file.

Refused (problems): a missing split, a class without an image, classes that differ between the
splits, a symbolic link that leaves the tree, a name that cannot stand in a manifest, a file
that is empty, cannot be read, is neither JPEG nor PNG by content or does not decode to its
end, and a file that lies in both splits by SHA-256. A clean tree gets its manifest.

Counted (notes), because every loader of fourmin decodes them to the same RGB image: PNG under
a JPEG name and the reverse (ImageNet has one), CMYK (ImageNet has 22), EXIF orientation other
than upright (it is ignored in training, as in published training code), duplicates within a
split, and files that are ignored. Grey images are counted too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.datasets.images import Scanned, printable, require_pillow, scan_image
from fourmin.datasets.manifest import (
    MANIFEST_NAME,
    SPLITS,
    ImageRow,
    Manifest,
    is_image_name,
    name_fault,
)
from fourmin.datasets.pool import Progress, spread
from fourmin.datasets.report import CheckReport, DataProblem

_CHUNK = 128
_IGNORED = "are ignored: not an image of a class by place and name"


def check_tree(
    data_dir: Path,
    workers: int | None = None,
    progress: Progress | None = None,
    *,
    allowed_in_both: Collection[str] = (),
) -> CheckReport:
    """Check the tree in `data_dir` with `workers` processes (default: every core).

    `allowed_in_both` are the SHA-256 of files that the benchmark itself has in both splits.
    Writes `fourmin-manifest.tsv` into the tree when there is no problem. Raises FourminError
    when `data_dir` is no folder, the manifest cannot be written or Pillow is missing.
    """
    require_pillow()
    if not data_dir.is_dir():
        raise FourminError(
            f"{data_dir} is not a folder",
            "the tree to check holds train/<class>/ and val/<class>/",
            "give the folder that contains train and val",
        )
    started = time.monotonic()
    report = CheckReport(data_dir)
    files = _list_tree(data_dir, report)
    rows: list[ImageRow] = []
    done = 0
    chunks = (files[start : start + _CHUNK] for start in range(0, len(files), _CHUNK))
    workers = 1 if len(files) <= _CHUNK else workers or len(os.sched_getaffinity(0))
    root = os.path.realpath(data_dir)
    for chunk in spread(_scan_chunk, root, chunks, workers, f"the check of {data_dir}"):
        rows += filter(None, map(report.add, chunk))
        done += len(chunk)
        if progress is not None:
            progress(done, len(files))
    report.settle(rows, allowed_in_both)
    if report.ok:
        report.manifest = Manifest.from_rows(rows)
        report.manifest_path = data_dir / MANIFEST_NAME
        report.manifest.write(report.manifest_path)
    report.seconds = time.monotonic() - started
    return report


def _leaves(path: str, root: str) -> bool:
    """Whether a symbolic link points out of the tree (or to nothing)."""
    target = os.path.realpath(path)
    return os.path.commonpath([target, root]) != root or not os.path.exists(target)


def _list_tree(data_dir: Path, report: CheckReport) -> list[tuple[str, str]]:
    """(split, path within the split) of every image, without opening any."""
    root = os.path.realpath(data_dir)
    files: list[tuple[str, str]] = []
    classes: dict[str, set[str]] = {}
    for split in SPLITS:
        base = os.path.join(root, split)
        if not os.path.isdir(base):
            report.problems.append(DataProblem(split, "the folder is missing"))
            continue
        if _leaves(base, root):
            report.problems.append(DataProblem(split, "a symbolic link that leaves the tree"))
            continue
        classes[split] = set()
        for folder in _listing(base, split, report):
            found = _list_class(root, split, folder, report)
            if found is not None:
                classes[split].add(folder.name)
                files += found
    if len(classes) == len(SPLITS):
        for name in sorted(classes["train"] ^ classes["val"]):
            has, lacks = SPLITS if name in classes["train"] else SPLITS[::-1]
            report.problems.append(
                DataProblem(
                    f"{lacks}/{printable(name)}", f"the class is in {has} but not in {lacks}"
                )
            )
    if not files and not report.problems:
        report.problems.append(DataProblem(".", "there is no class folder in train and val"))
    return files


def _listing(folder: str, name: str, report: CheckReport) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        report.problems.append(DataProblem(name, f"cannot be listed: {error.strerror or error}"))
        return []


def _list_class(
    root: str, split: str, folder: os.DirEntry[str], report: CheckReport
) -> list[tuple[str, str]] | None:
    """The images of one class folder; None when `folder` is not one that can be used."""
    name = f"{split}/{printable(folder.name)}"
    if folder.is_symlink() and _leaves(folder.path, root):
        report.problems.append(DataProblem(name, "a symbolic link that leaves the tree"))
        return None
    if not folder.is_dir() or folder.name.startswith("."):
        report.note(_IGNORED, name)
        return None
    fault = name_fault(folder.name)
    if fault:
        report.problems.append(DataProblem(name, fault))
        return None
    found = []
    for entry in _listing(folder.path, name, report):
        path = f"{name}/{printable(entry.name)}"
        if entry.is_symlink() and _leaves(entry.path, root):
            report.problems.append(DataProblem(path, "a symbolic link that leaves the tree"))
        elif not is_image_name(entry.name) or entry.name.startswith(".") or not entry.is_file():
            report.note(_IGNORED, path)
        elif fault := name_fault(entry.name):
            report.problems.append(DataProblem(path, fault))
        else:
            found.append((split, f"{folder.name}/{entry.name}"))
    if not found:
        report.problems.append(DataProblem(name, "the class has no image"))
    return found


def _scan_chunk(root: str, chunk: Sequence[tuple[str, str]]) -> list[Scanned]:
    return [_scan_file(root, split, path) for split, path in chunk]


def _scan_file(root: str, split: str, path: str) -> Scanned:
    name = f"{split}/{printable(path)}"
    try:
        with open(os.path.join(root, split, path), "rb") as file:
            data = file.read()
    except OSError as error:
        return Scanned(name, None, f"cannot be read: {error.strerror or error}")
    return scan_image(data, name, split, path)
