"""The manifest of an image tree: what lies in it, and one digest for each split.

A tree is `train/<class>/<image>` and `val/<class>/<image>`. Its manifest is a text file: a
line of JSON (schema version, class names, and for each split the number of images and the
digest), then one line an image with tab-separated fields: split, class index, path within the
split, bytes, SHA-256 of the file, width and height in pixels as stored (EXIF orientation is
not applied). Rows are sorted by path in UTF-8 byte order, training before validation; the
position of a row in its split is the image's sample index.

The digest of a split is the SHA-256 over `path TAB bytes TAB sha256 LF` of its rows: it does
not depend on where the tree lies, nor on who wrote the manifest. Its pin is the SHA-256 over the
sorted `class TAB sha256 LF`: it does not depend on the images' names and order either. Beside them
the header says what the order is by, which images are in both splits, and whether the images claim
to be those of the official archives.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from fourmin.base.canonical import loads_strict
from fourmin.base.errors import FourminError
from fourmin.base.files import write_durably
from fourmin.base.mishaps import told
from fourmin.base.text import command
from fourmin.datasets.columns import Columns, Split

SCHEMA_VERSION = 1
MANIFEST_NAME = "fourmin-manifest.tsv"
SPLITS = ("train", "val")
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
"""Names of images end so, in lower or upper case."""

BY_NAME = "names"
BY_HASH = "class and hash"
"""What images are ordered by: their files' names, or, of a source without names, their SHA-256."""

_ABOUT = ("order", "in_both_splits", "claims", "not_original")
_MAX_HEADER = 4 << 20
_BLOCK = 256 << 10
_LONGEST_LINE = 64 << 10
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
class Manifest:
    """A tree's class names, sorted, and its two splits."""

    class_names: tuple[str, ...]
    splits: Mapping[str, Split]
    pins: Mapping[str, str]
    """Of each split, the digest over its sorted classes and hashes."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the header says beside: `order`, `in_both_splits`, `claims`."""
    header: bytes = field(default=b"", compare=False, repr=False)
    """The first line as it was read; it holds a digest of all rows."""

    def split(self, name: str) -> Split:
        """The split called `train` or `val`."""
        return self.splits[name]

    def digest(self, name: str) -> str:
        return self.splits[name].digest

    def facts(self) -> dict[str, Any]:
        """What campaign.json and the event log say of the data: counts and digests, no path."""
        return {
            "classes": len(self.class_names),
            "train_samples": len(self.splits["train"]),
            "eval_samples": len(self.splits["val"]),
            "train_digest": self.digest("train"),
            "eval_digest": self.digest("val"),
            "train_pin": self.pins["train"],
            "eval_pin": self.pins["val"],
            "order": self.about.get("order", BY_NAME),
        }

    def fits(self, facts: Mapping[str, Any]) -> bool:
        """Whether `facts` were said of these images: campaigns of before say fewer."""
        return facts.items() <= self.facts().items()

    @classmethod
    def from_rows(cls, rows: Iterable[ImageRow]) -> Manifest:
        """Build a manifest from rows in any order. Raises ValueError as `from_sorted` does."""
        ordered = sorted(rows, key=lambda row: (row.split, row.path.encode()))
        classes = {row.path.split("/", 1)[0] for row in ordered}
        return cls.from_sorted(ordered, sorted(classes, key=str.encode), {"order": BY_NAME})

    @classmethod
    def from_sorted(
        cls, rows: Iterable[ImageRow], class_names: Iterable[str], about: Mapping[str, Any]
    ) -> Manifest:
        """Build a manifest from rows sorted by split and path in UTF-8, held one at a time.

        The class of an image is the first part of its path. Raises ValueError when the splits
        do not have the same classes, or a path comes twice or cannot be written in a manifest.
        """
        names = tuple(class_names)
        label_of = {name: label for label, name in enumerate(names)}
        columns = {name: Columns(name) for name in SPLITS}
        for name, group in groupby(rows, lambda row: row.split):
            while block := [*islice(group, 4096)]:
                _add_rows(columns[name], block, label_of)
        splits = {name: columns[name].split() for name in SPLITS}
        odd = {*splits["train"].labels} ^ {*splits["val"].labels}
        if odd:
            listed = ", ".join(names[label] for label in sorted(odd)[:20])
            raise ValueError(f"train and val do not have the same classes: {listed}")
        return cls(names, splits, _pins(splits, names), about)

    def as_before(self, path: Path) -> Manifest:
        """With what the manifest in `path` says of where the same images come from."""
        try:
            before = Manifest.load(path)
        except FourminError:
            return self
        return (
            replace(self, about={**self.about, **before.about})
            if before.splits == self.splits
            else self
        )

    def write(self, path: Path) -> None:
        """Write the file under a temporary name and rename it. Raises FourminError."""
        rows = hashlib.sha256()
        for block in self._lines():
            rows.update(block)
        header = {
            "schema_version": SCHEMA_VERSION,
            "rows_sha256": rows.hexdigest(),
            "splits": {
                name: {"images": len(self.splits[name]), "sha256": self.splits[name].digest}
                for name in SPLITS
            },
            "pins": dict(self.pins),
            **self.about,
            "classes": list(self.class_names),
        }
        line = json.dumps(header, ensure_ascii=False).encode() + b"\n"
        step = "make the dataset's folder writable for the check; a run only reads it"
        with told(f"cannot write the manifest {path}", step):
            write_durably(path, chain([line], self._lines()))

    def _lines(self) -> Iterator[bytes]:
        """The rows as text, some at a time."""
        for name in SPLITS:
            split = self.splits[name]
            for at in range(0, len(split), 4096):
                yield "".join(
                    f"{name}\t{split.labels[row]}\t{split.paths[row]}\t{split.sizes[row]}\t"
                    f"{split.sha256(row)}\t{split.widths[row]}\t{split.heights[row]}\n"
                    for row in range(at, min(at + 4096, len(split)))
                ).encode()

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read a manifest and recompute every digest in it.

        A process that reads the same rows again gets what it read last. Raises FourminError,
        naming the file, the reason and the next step, for any fault.
        """
        check = command("data", "check", path.parent)
        with (
            told(f"cannot read the manifest {path}", f"write it once with: {check}"),
            told(f"the manifest {path} is not valid", f"write it again with: {check}", ValueError),
            path.open("rb") as file,
        ):
            return _read(file)


_LAST: dict[bytes, Manifest] = {}
"""What this process read last, by its header: a campaign reads the same for each of its runs."""


def remember(manifest: Manifest) -> None:
    """Have `Manifest.load` give this one for a file whose rows have the digest in its header."""
    _LAST.clear()
    _LAST[manifest.header] = manifest


def header_digest(path: Path) -> str | None:
    """SHA-256 of the first line of a manifest, or None where it cannot be read.

    It is what `Manifest.header` has where `Manifest.load` has found the rows to be those of it.
    """
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.readline(_MAX_HEADER + 1)).hexdigest()
    except OSError:
        return None


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


def _add_rows(columns: Columns, rows: list[ImageRow], label_of: Mapping[str, int]) -> None:
    for row in rows:
        folder, _, file = row.path.partition("/")
        fault = name_fault(folder) or name_fault(file)
        if fault or folder in ("", ".", "..") or not is_image_name(file):
            raise ValueError(f"{row.path!r} cannot be in a manifest: {fault or 'not class/image'}")
        columns.labels.append(label_of[folder])
        columns.sizes.append(row.size)
        columns.widths.append(row.width)
        columns.heights.append(row.height)
        columns.hashes += row.sha256
        columns.digest.update(f"{row.path}\t{row.size}\t{row.sha256.hex()}\n".encode())
    columns.add_sorted([row.path.encode() for row in rows])


def _pins(splits: Mapping[str, Split], class_names: Sequence[str]) -> dict[str, str]:
    """For each split the SHA-256 over its sorted classes and hashes."""
    found = {}
    for name, split in splits.items():
        spans, start = {}, 0
        # Sorted by path, the images of a class stand together.
        for label, group in groupby(split.labels):
            spans[label] = range(start, start := start + sum(1 for _ in group))
        digest = hashlib.sha256()
        for label in sorted(spans):
            hashes = sorted(map(split.sha256, spans[label]))
            lines = (f"{class_names[label]}\t{one}\n" for one in hashes)
            digest.update("".join(lines).encode())
        found[name] = digest.hexdigest()
    return found


def _parse_header(line: bytes) -> dict[str, Any]:
    if len(line) > _MAX_HEADER:
        raise ValueError("the header line is too long")
    header: Any = loads_strict(line)
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
    if classes != sorted(set(classes), key=str.encode):
        raise ValueError("the class names in the header are not sorted, or one comes twice")
    splits = header.get("splits")
    if not isinstance(splits, dict) or set(splits) != set(SPLITS):
        raise ValueError("the header does not describe exactly the splits train and val")
    if not all(isinstance(entry, dict) for entry in splits.values()):
        raise ValueError("a split in the header is not an object")
    if header.get("order", BY_NAME) not in (BY_NAME, BY_HASH):
        raise ValueError("the order in the header is not one that there is")
    return header


def _read(file: BinaryIO) -> Manifest:
    line = file.readline(_MAX_HEADER + 1)
    if not line.endswith(b"\n") and len(line) <= _MAX_HEADER:
        raise ValueError("it has no line after the header" if line else "it is empty")
    header = _parse_header(line)
    rows_at, digest = file.tell(), hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    if header.get("rows_sha256") != digest.hexdigest():
        raise ValueError("its rows have changed since it was written, or it was cut short")
    manifest = _LAST.get(line)
    if manifest is None:
        file.seek(rows_at)
        manifest = _parse(line, header, file)
        remember(manifest)
    return manifest


def _parse(line: bytes, header: Mapping[str, Any], file: BinaryIO) -> Manifest:
    digest = hashlib.sha256()
    class_names = tuple(header["classes"])
    prefixes = [f"{folder}/".encode() for folder in class_names]
    columns = {name: Columns(name) for name in SPLITS}
    line_number = 2
    for block in _blocks(file):
        digest.update(block)
        if not block.endswith(b"\n"):
            raise ValueError("its last line is not complete, or a line is too long")
        fields = _ROW.findall(block)
        if len(fields) != block.count(b"\n"):
            # Every match is one whole line, so a smaller number means a line that does not match.
            raise ValueError(f"line {line_number + _bad_line(block)} is not a row of a manifest")
        train = sum(row[0] == b"train" for row in fields)
        if any(row[0] != b"val" for row in fields[train:]) or (train and columns["val"].labels):
            raise ValueError("rows of val stand before rows of train")
        columns["train"].extend(fields[:train], prefixes)
        columns["val"].extend(fields[train:], prefixes)
        line_number += len(fields)
    if header["rows_sha256"] != digest.hexdigest():
        raise ValueError("it was changed while it was read")
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
    pins = _pins(splits, class_names)
    if header.get("pins", pins) != pins:
        raise ValueError("the pins in the header are not those of the rows")
    about = {"order": BY_NAME, **{name: header[name] for name in _ABOUT if name in header}}
    return Manifest(class_names, splits, pins, about, line)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines, some at a time: the fields of a million rows take gigabytes."""
    while block := file.read(_BLOCK):
        yield block + file.readline(_LONGEST_LINE) if block[-1:] != b"\n" else block


def _bad_line(block: bytes) -> int:
    lines = block.split(b"\n")
    return next(number for number, line in enumerate(lines) if not _ROW.fullmatch(line))
