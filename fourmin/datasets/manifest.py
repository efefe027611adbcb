"""The manifest of an image tree: what lies in it, and one digest for each split.

A tree is `train/<class>/<image>` and `val/<class>/<image>`. Its manifest is a text file: a
line of JSON (schema version, class names, and for each split the number of images and the
digest), then one line an image with tab-separated fields: split, class index, path within the
split, bytes, SHA-256 of the file, width and height in pixels as stored (EXIF orientation is
not applied). Rows are sorted by path in UTF-8 byte order, training before validation; the
position of a row in its split is the image's sample index.

The digest of a split is the SHA-256 over `path TAB bytes TAB sha256 LF` of its rows: it does
not depend on where the tree lies, nor on who wrote the manifest.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fourmin.base.errors import FourminError
from fourmin.base.files import write_durably

SCHEMA_VERSION = 1
MANIFEST_NAME = "fourmin-manifest.tsv"
SPLITS = ("train", "val")
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
"""Names of images end so, in lower or upper case."""

_MAX_HEADER = 4 << 20
_BLOCK = 4 << 20
_ROW = re.compile(
    rb"(?m)^(train|val)\t(0|[1-9][0-9]{0,5})\t"
    rb"(([^\t\n\r\0/]+/[^\t\n\r\0/]+\.(?i:jpe?g|png))\t([1-9][0-9]{0,11})\t([0-9a-f]{64}))"
    rb"\t([1-9][0-9]{0,5})\t([1-9][0-9]{0,5})$"
)
_BAD_IN_NAMES = re.compile(r"[\t\n\r\0/]")


class ImageRow(NamedTuple):
    """One image: its split, path within the split, size, raw SHA-256, and pixels."""

    split: str
    path: str
    size: int
    sha256: bytes
    width: int
    height: int


@dataclass(frozen=True)
class Split:
    """One split, in sample-index order; every sequence has one item an image.

    `paths` are relative to the split's folder; `labels` index the manifest's `class_names`;
    `sizes` are bytes; `widths` and `heights` pixels; `hashes` the raw SHA-256 of all files,
    32 bytes each. The arrays can be viewed by numpy without a copy.
    """

    name: str
    paths: Sequence[str]
    labels: array[int]
    sizes: array[int]
    widths: array[int]
    heights: array[int]
    hashes: bytes
    digest: str

    def __len__(self) -> int:
        return len(self.paths)

    def sha256(self, index: int) -> str:
        return self.hashes[32 * index : 32 * index + 32].hex()


@dataclass(frozen=True)
class Manifest:
    """A tree's class names, sorted, and its two splits."""

    class_names: tuple[str, ...]
    splits: Mapping[str, Split]

    def split(self, name: str) -> Split:
        """The split called `train` or `val`."""
        return self.splits[name]

    def digest(self, name: str) -> str:
        return self.splits[name].digest

    @classmethod
    def from_rows(cls, rows: Iterable[ImageRow]) -> Manifest:
        """Build a manifest from rows in any order.

        The class of an image is the first part of its path. Raises ValueError when the splits
        do not have the same classes, or a path comes twice or cannot be written in a manifest.
        """
        by_split: dict[str, list[ImageRow]] = {name: [] for name in SPLITS}
        for row in rows:
            by_split[row.split].append(row)
        classes = {
            name: {row.path.split("/", 1)[0] for row in found} for name, found in by_split.items()
        }
        if classes["train"] != classes["val"]:
            odd = sorted(classes["train"] ^ classes["val"])
            raise ValueError(f"train and val do not have the same classes: {', '.join(odd[:20])}")
        class_names = tuple(sorted(classes["train"], key=_utf8))
        label_of = {name: label for label, name in enumerate(class_names)}
        splits = {name: _make_split(name, found, label_of) for name, found in by_split.items()}
        return cls(class_names, splits)

    def write(self, path: Path) -> None:
        """Write the file under a temporary name and rename it. Raises FourminError."""
        body = b"".join(_split_lines(self.splits[name]) for name in SPLITS)
        header = {
            "schema_version": SCHEMA_VERSION,
            "rows_sha256": hashlib.sha256(body).hexdigest(),
            "splits": {
                name: {"images": len(self.splits[name]), "sha256": self.splits[name].digest}
                for name in SPLITS
            },
            "classes": list(self.class_names),
        }
        line = json.dumps(header, ensure_ascii=False).encode() + b"\n"
        try:
            write_durably(path, line + body)
        except OSError as error:
            raise FourminError(
                f"cannot write the manifest {path}",
                error.strerror or str(error),
                "make the dataset's folder writable for the check; a run only reads it",
            ) from error

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read a manifest and recompute every digest in it.

        Raises FourminError, naming the file, the reason and the next step, for any fault.
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise FourminError(
                f"cannot read the manifest {path}",
                error.strerror or str(error),
                f"write it once with: fourmin data check {path.parent}",
            ) from error
        try:
            return _parse(data)
        except ValueError as error:
            raise FourminError(
                f"the manifest {path} is not valid",
                str(error),
                f"write it again with: fourmin data check {path.parent}",
            ) from error


def is_image_name(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def name_fault(name: str) -> str:
    """Why a class or file name cannot stand in a manifest; empty when it can."""
    if _BAD_IN_NAMES.search(name):
        return "the name has a tab, a line break or a NUL in it"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "the name is not valid UTF-8"
    return ""


def _utf8(text: str) -> bytes:
    return text.encode()


def _make_split(name: str, rows: list[ImageRow], label_of: Mapping[str, int]) -> Split:
    rows.sort(key=lambda row: _utf8(row.path))
    for row in rows:
        folder, _, file = row.path.partition("/")
        fault = name_fault(folder) or name_fault(file)
        if fault or folder in ("", ".", "..") or not is_image_name(file):
            raise ValueError(f"{row.path!r} cannot be in a manifest: {fault or 'not class/image'}")
    paths = [row.path for row in rows]
    if len(set(paths)) != len(paths):
        raise ValueError(f"a path of {name} comes twice")
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row.path}\t{row.size}\t{row.sha256.hex()}\n".encode())
    return Split(
        name=name,
        paths=paths,
        labels=array("q", (label_of[path.split("/", 1)[0]] for path in paths)),
        sizes=array("q", (row.size for row in rows)),
        widths=array("q", (row.width for row in rows)),
        heights=array("q", (row.height for row in rows)),
        hashes=b"".join(row.sha256 for row in rows),
        digest=digest.hexdigest(),
    )


def _split_lines(split: Split) -> bytes:
    digits = split.hashes.hex()
    return "".join(
        f"{split.name}\t{label}\t{path}\t{size}\t{digits[at : at + 64]}\t{width}\t{height}\n"
        for label, path, size, width, height, at in zip(
            split.labels,
            split.paths,
            split.sizes,
            split.widths,
            split.heights,
            range(0, len(digits), 64),
            strict=True,
        )
    ).encode()


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key of the header comes twice")
    return found


def _parse_header(line: bytes) -> dict[str, Any]:
    if len(line) > _MAX_HEADER:
        raise ValueError("the header line is too long")
    try:
        header = json.loads(line.decode(), object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise ValueError("the header is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("the header is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"the header is not JSON: {error.msg}") from None
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    version = header.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise ValueError(f"the schema version is not {SCHEMA_VERSION}")
    classes = header.get("classes")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ValueError("the header does not list the class names")
    if any(name in ("", ".", "..") or name_fault(name) for name in classes):
        raise ValueError("a class name in the header is not a folder name")
    if classes != sorted(set(classes), key=_utf8):
        raise ValueError("the class names in the header are not sorted, or one comes twice")
    splits = header.get("splits")
    if not isinstance(splits, dict) or set(splits) != set(SPLITS):
        raise ValueError("the header does not describe exactly the splits train and val")
    if not all(isinstance(entry, dict) for entry in splits.values()):
        raise ValueError("a split in the header is not an object")
    return header


def _parse(data: bytes) -> Manifest:
    line, newline, body = data.partition(b"\n")
    if not newline:
        raise ValueError("it has no line after the header" if line else "it is empty")
    header = _parse_header(line)
    if header.get("rows_sha256") != hashlib.sha256(body).hexdigest():
        raise ValueError("its rows have changed since it was written, or it was cut short")
    if body and not body.endswith(b"\n"):
        raise ValueError("its last line is not complete")
    class_names = tuple(header["classes"])
    columns = {name: _Columns(name, class_names) for name in SPLITS}
    line_number = 2
    for block in _blocks(body):
        fields = _ROW.findall(block)
        if len(fields) != block.count(b"\n"):
            # Every match is one whole line, so a smaller number means a line that does not match.
            raise ValueError(f"line {line_number + _bad_line(block)} is not a row of a manifest")
        train = sum(row[0] == b"train" for row in fields)
        if any(row[0] != b"val" for row in fields[train:]) or (train and columns["val"].paths):
            raise ValueError("rows of val stand before rows of train")
        columns["train"].extend(fields[:train])
        columns["val"].extend(fields[train:])
        line_number += len(fields)
    splits = {}
    for name in SPLITS:
        split = columns[name].split()
        stated = header["splits"][name]
        if stated.get("images") != len(split):
            raise ValueError(
                f"the header counts {stated.get('images')!r} images in {name}, "
                f"the rows are {len(split)}"
            )
        if stated.get("sha256") != split.digest:
            raise ValueError(f"the digest of {name} in the header is not that of the rows")
        if set(split.labels) != set(range(len(class_names))):
            raise ValueError(f"a class has no image in {name}")
        splits[name] = split
    return Manifest(class_names, splits)


def _blocks(body: bytes) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time: the fields of a million rows take gigabytes."""
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + _BLOCK) + 1 or len(body)
        yield body[start:end]
        start = end


def _bad_line(block: bytes) -> int:
    lines = block.split(b"\n")
    return next(number for number, line in enumerate(lines) if not _ROW.fullmatch(line))


class _Columns:
    """The rows of one split, as they are read."""

    def __init__(self, name: str, class_names: Sequence[str]) -> None:
        self.paths: list[str] = []
        self._name = name
        self._prefixes = [f"{folder}/" for folder in class_names]
        self._numbers = {field: array("q") for field in ("label", "size", "width", "height")}
        self._hashes = bytearray()
        self._digest = hashlib.sha256()
        self._last = b""

    def extend(self, rows: list[tuple[bytes, ...]]) -> None:
        """Add rows, the groups of `_ROW`. Raises ValueError."""
        if not rows:
            return
        _, labels, digested, raw_paths, sizes, hashes, widths, heights = zip(*rows, strict=True)
        if any(not first < second for first, second in pairwise((self._last, *raw_paths))):
            raise ValueError(f"the paths of {self._name} are not sorted, or one comes twice")
        self._last = raw_paths[-1]
        try:
            paths = b"\n".join(raw_paths).decode().split("\n")
        except UnicodeDecodeError:
            raise ValueError(f"a path of {self._name} is not UTF-8 text") from None
        for path, label in zip(paths, map(int, labels), strict=True):
            if label >= len(self._prefixes):
                raise ValueError(f"a class index of {self._name} is beyond the class names")
            if not path.startswith(self._prefixes[label]):
                raise ValueError(
                    f"{self._name}/{path} does not lie in the folder of its class {label}"
                )
        self.paths += paths
        for field, column in zip(
            self._numbers.values(), (labels, sizes, widths, heights), strict=True
        ):
            field.extend(map(int, column))
        self._hashes += bytes.fromhex(b"".join(hashes).decode())
        self._digest.update(b"\n".join(digested) + b"\n")

    def split(self) -> Split:
        return Split(
            name=self._name,
            paths=self.paths,
            labels=self._numbers["label"],
            sizes=self._numbers["size"],
            widths=self._numbers["width"],
            heights=self._numbers["height"],
            hashes=bytes(self._hashes),
            digest=self._digest.hexdigest(),
        )
