"""Images in TFRecord files, read in place: the framing, and of tf.train.Example what is needed.

A record is its length (8 bytes, little-endian), a CRC-32C of those, the data, and a CRC-32C of the
data. Records must follow one another to the end of the file, and each be an Example; an image
whose bytes have changed is found when it is decoded. The file is mapped, so that of an image only
its place is read here.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.mishaps import told
from fourmin.datasets.archives import Member
from fourmin.datasets.images import whole

_LABELS = ("image/class/synset", "image/class/label", "label", "label_name", "class")
_NAMES = ("image/filename", "file_name", "filename")
_BYTES, _NUMBERS = 1, 3
"""Kinds of lists in a feature."""
_LONGEST_TEXT = 4096
_IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n")


def records(path: Path) -> Iterator[Member]:
    """The images of a TFRecord file. Raises FourminError."""
    with (
        told(f"cannot read {path}"),
        whole(path, (ValueError, IndexError)),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        at, number = 0, 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            if at + 16 + length > len(data):
                raise ValueError(f"record {number} is cut short, or this is no TFRecord file")
            yield _example(path, data, at + 12, at + 12 + length, number)
            at, number = at + 16 + length, number + 1


def _example(path: Path, data: mmap.mmap, start: int, end: int, number: int) -> Member:
    image: tuple[int, int] | None = None
    said: dict[str, Any] = {}
    for _, first, last in _fields(data, start, end):
        for _, a, b in _fields(data, first, last):
            entry = {key: (c, d) for key, c, d in _fields(data, a, b)}
            name = data[slice(*entry[1])].decode(errors="replace")
            for kind, c, d in _fields(data, *entry.get(2, (0, 0))):
                for _, e, f in [*_fields(data, c, d)][:1]:
                    if kind == _BYTES and data[e : e + 6].startswith(_IMAGES):
                        image = (e, f - e)
                    elif kind == _BYTES and f - e < _LONGEST_TEXT:
                        said[name] = data[e:f].decode(errors="replace")
                    elif kind == _NUMBERS:
                        # Packed numbers lie in bytes; one that is not is its own field.
                        said[name] = _varint(data, e)[0] if f else e
    label = next((said[one] for one in _LABELS if one in said), None)
    filename = next((said[one] for one in _NAMES if said.get(one)), None)
    if image is None:
        raise FourminError(
            f"{path} holds a record without a JPEG or PNG",
            f"record {number} has {', '.join(sorted(said)) or 'nothing'} in it",
            "TFRecords of raw pixels are not the original images: name the archives or folders",
        )
    return Member((), *image, {"label": label, "filename": filename, "json": True})


def _varint(data: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number in a record is too long")


def _fields(data: Any, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, first byte, byte after the last) of a protocol buffer's fields.

    Of a number that stands alone its value comes first, and 0.
    """
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value, 0
            continue
        if kind not in (1, 2, 5):
            raise ValueError("a record is no tf.train.Example")
        length, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if at + length > end:
            raise ValueError("a record is no tf.train.Example")
        yield key >> 3, at, at + length
        at += length
