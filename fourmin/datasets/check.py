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

import hashlib
import io
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from fourmin.datasets.manifest import (
    MANIFEST_NAME,
    SPLITS,
    ImageRow,
    Manifest,
    is_image_name,
    name_fault,
)
from fourmin.errors import FourminError

_CHUNK = 128
_EXAMPLES = 5
_EXIF_ORIENTATION = 0x0112
_CMYK = "are CMYK, not RGB"
_GREY = "are grey, not RGB"
_PNG_AS_JPEG = "are PNG by content under a JPEG name"
_JPEG_AS_PNG = "are JPEG by content under a PNG name"
_ORIENTED = "have an EXIF orientation, which training ignores"
_IGNORED = "are ignored: not an image of a class by place and name"
_DUPLICATE = "have the same content as another image of their split"
_LISTED = "lie in both splits, as the benchmark lists"

Progress = Callable[[int, int], None]
"""Called with the number of files done and the number of files."""


@dataclass(frozen=True)
class Problem:
    """One thing that must be put right: where (relative to the tree) and why."""

    path: str
    reason: str


@dataclass
class Note:
    """A number of files that are fine but worth knowing, with a few names."""

    text: str
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        """Count one more file."""
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(path)


@dataclass
class CheckReport:
    """What a check found. `manifest` is None unless the tree is clean."""

    data_dir: Path
    images: dict[str, int] = field(default_factory=dict)
    classes: int = 0
    total_bytes: int = 0
    seconds: float = 0.0
    problems: list[Problem] = field(default_factory=list)
    notes: dict[str, Note] = field(default_factory=dict)
    manifest: Manifest | None = None
    manifest_path: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON types, with every problem."""
        return {
            "data_dir": str(self.data_dir),
            "ok": self.ok,
            "images": self.images,
            "classes": self.classes,
            "bytes": self.total_bytes,
            "seconds": round(self.seconds, 3),
            "problems": [{"path": one.path, "reason": one.reason} for one in self.problems],
            "notes": [
                {"text": one.text, "count": one.count, "examples": one.examples}
                for one in self.notes.values()
            ],
            "manifest": None if self.manifest_path is None else str(self.manifest_path),
            "digests": {}
            if self.manifest is None
            else {name: self.manifest.digest(name) for name in SPLITS},
        }


class _Scanned(NamedTuple):
    """What one file gave: a row or a problem, and the texts of the notes it counts in."""

    name: str
    row: ImageRow | None
    problem: str
    notes: tuple[str, ...]


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
    _require_pillow()
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
    for chunk in _scan_all(data_dir, files, workers or len(os.sched_getaffinity(0))):
        for one in chunk:
            if one.row is not None:
                rows.append(one.row)
            else:
                report.problems.append(Problem(one.name, one.problem))
            for text in one.notes:
                _note(report, text, one.name)
        done += len(chunk)
        if progress is not None:
            progress(done, len(files))
    rows.sort(key=lambda row: (row.split, row.path.encode()))
    _find_duplicates(rows, allowed_in_both, report)
    report.images = {name: sum(row.split == name for row in rows) for name in SPLITS}
    report.classes = len({row.path.split("/", 1)[0] for row in rows})
    report.total_bytes = sum(row.size for row in rows)
    report.problems.sort(key=lambda problem: problem.path.encode(errors="surrogateescape"))
    if report.ok:
        report.manifest = Manifest.from_rows(rows)
        report.manifest_path = data_dir / MANIFEST_NAME
        report.manifest.write(report.manifest_path)
    report.seconds = time.monotonic() - started
    return report


def compare_with_benchmark(manifest: Manifest, expected: Mapping[str, Any]) -> list[str]:
    """Differences between a manifest and what a benchmark states, in plain words.

    `expected` is the `dataset` of a benchmark: any of `classes`, `train_samples` and
    `eval_samples` (numbers), `train_digest` and `eval_digest`. What is absent or None is not
    compared.
    """
    differences = []
    classes = expected.get("classes")
    if classes is not None and classes != len(manifest.class_names):
        differences.append(f"{len(manifest.class_names):,} classes, the benchmark has {classes:,}")
    for name, key, word in (("train", "train", "training"), ("val", "eval", "validation")):
        split = manifest.split(name)
        images = expected.get(f"{key}_samples")
        if images is not None and images != len(split):
            differences.append(f"{len(split):,} {word} images, the benchmark has {images:,}")
        digest = expected.get(f"{key}_digest")
        if digest is not None and digest != split.digest:
            differences.append(
                f"the {word} images have the digest {split.digest}, the benchmark's is {digest}"
            )
    return differences


def _require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise FourminError(
            "images cannot be checked here",
            "the package pillow is missing",
            "pip install 'fourmin[train]'",
        ) from error


def _note(report: CheckReport, text: str, path: str) -> None:
    report.notes.setdefault(text, Note(text)).add(path)


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
            report.problems.append(Problem(split, "the folder is missing"))
            continue
        if _leaves(base, root):
            report.problems.append(Problem(split, "a symbolic link that leaves the tree"))
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
                Problem(f"{lacks}/{_printable(name)}", f"the class is in {has} but not in {lacks}")
            )
    if not files and not report.problems:
        report.problems.append(Problem(".", "there is no class folder in train and val"))
    return files


def _listing(folder: str, name: str, report: CheckReport) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        report.problems.append(Problem(name, f"cannot be listed: {error.strerror or error}"))
        return []


def _list_class(
    root: str, split: str, folder: os.DirEntry[str], report: CheckReport
) -> list[tuple[str, str]] | None:
    """The images of one class folder; None when `folder` is not one that can be used."""
    name = f"{split}/{_printable(folder.name)}"
    if folder.is_symlink() and _leaves(folder.path, root):
        report.problems.append(Problem(name, "a symbolic link that leaves the tree"))
        return None
    if not folder.is_dir() or folder.name.startswith("."):
        _note(report, _IGNORED, name)
        return None
    fault = name_fault(folder.name)
    if fault:
        report.problems.append(Problem(name, fault))
        return None
    found = []
    for entry in _listing(folder.path, name, report):
        path = f"{name}/{_printable(entry.name)}"
        if entry.is_symlink() and _leaves(entry.path, root):
            report.problems.append(Problem(path, "a symbolic link that leaves the tree"))
        elif not is_image_name(entry.name) or entry.name.startswith(".") or not entry.is_file():
            _note(report, _IGNORED, path)
        elif fault := name_fault(entry.name):
            report.problems.append(Problem(path, fault))
        else:
            found.append((split, f"{folder.name}/{entry.name}"))
    if not found:
        report.problems.append(Problem(name, "the class has no image"))
    return found


def _printable(name: str) -> str:
    """A file name that any terminal and JSON writer can take."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in name
    )


def _scan_all(
    data_dir: Path, files: Sequence[tuple[str, str]], workers: int
) -> Iterator[list[_Scanned]]:
    root = os.path.realpath(data_dir)
    chunks = (files[start : start + _CHUNK] for start in range(0, len(files), _CHUNK))
    if workers == 1 or len(files) <= _CHUNK:
        for chunk in chunks:
            yield _scan_chunk(root, chunk)
        return
    # Spawned, not forked: the caller may run threads (a progress bar does).
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        # A bounded number of chunks in flight: a million paths are not pickled at once.
        waiting: set[Future[list[_Scanned]]] = {
            pool.submit(_scan_chunk, root, chunk) for chunk in islice(chunks, 4 * workers)
        }
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            waiting |= {
                pool.submit(_scan_chunk, root, chunk) for chunk in islice(chunks, len(finished))
            }
            for future in finished:
                yield future.result()
    except BrokenProcessPool as error:
        raise FourminError(
            f"the check of {data_dir} broke off",
            "one of its worker processes was killed, perhaps for want of memory",
            "try again with fewer: --workers N",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _scan_chunk(root: str, chunk: Sequence[tuple[str, str]]) -> list[_Scanned]:
    return [_scan_file(root, split, path) for split, path in chunk]


def _scan_file(root: str, split: str, path: str) -> _Scanned:
    name = f"{split}/{_printable(path)}"
    try:
        with open(os.path.join(root, split, path), "rb") as file:
            data = file.read()
    except OSError as error:
        return _Scanned(name, None, f"cannot be read: {error.strerror or error}", ())
    if not data:
        return _Scanned(name, None, "the file is empty", ())
    try:
        width, height, notes = _decode(data, path)
    except Exception as error:
        # Pillow's plugins raise many types (OSError, SyntaxError, ValueError, struct.error,
        # DecompressionBombError) for hostile or broken files; each is this file's problem.
        return _Scanned(name, None, _decode_fault(error), ())
    row = ImageRow(split, path, len(data), hashlib.sha256(data).digest(), width, height)
    return _Scanned(name, row, "", notes)


def _decode(data: bytes, path: str) -> tuple[int, int, tuple[str, ...]]:
    """Width, height and notes of an image, decoded to its end."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            image.load()
            notes = []
            named_png = path.lower().endswith(".png")
            if (image.format == "PNG") != named_png:
                notes.append(_JPEG_AS_PNG if named_png else _PNG_AS_JPEG)
            if image.mode == "CMYK":
                notes.append(_CMYK)
            elif image.mode in ("1", "L", "LA", "I", "I;16"):
                notes.append(_GREY)
            if image.getexif().get(_EXIF_ORIENTATION, 1) != 1:
                notes.append(_ORIENTED)
            return image.width, image.height, tuple(notes)


def _decode_fault(error: Exception) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "is neither a JPEG nor a PNG by content"
    if isinstance(error, Image.DecompressionBombError):
        return "is too large an image to be a photograph"
    if "truncated" in str(error):
        return "is truncated: it does not decode to its end"
    return f"does not decode: {_printable(str(error))[:200] or type(error).__name__}"


def _find_duplicates(
    rows: Sequence[ImageRow], allowed: Collection[str], report: CheckReport
) -> None:
    """`rows` are sorted, so that the first of equal files is the same on every machine."""
    times = Counter(row.sha256 for row in rows)
    seen: dict[bytes, dict[str, str]] = {}
    for row in rows:
        if times[row.sha256] == 1:
            continue
        first = seen.setdefault(row.sha256, {})
        name = f"{row.split}/{row.path}"
        other = first.get("train") if row.split == "val" else None
        if other is not None and row.sha256.hex() in allowed:
            _note(report, _LISTED, name)
        elif other is not None:
            report.problems.append(Problem(name, f"has the same content as {other}"))
        elif row.split in first:
            _note(report, _DUPLICATE, name)
        first.setdefault(row.split, name)
