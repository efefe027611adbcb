"""Tar shards in WebDataset's format, and the index that says where each image begins.

A folder of shards holds `fourmin-manifest.tsv`, byte for byte that of the tree it was made
from, `fourmin-shards.txt` and the shards, `train-000000.tar` and so on. A shard holds samples
in the manifest's order, each as two members whose names differ only in what follows the dot:
`000000012.cls`, the class index as text, and `000000012.jpg` (or `.png`, by the file's name),
the bytes of the image. The number is the sample index in its split. Names, owner, mode and
time of a member follow from the manifest, so that the same tree gives the same bytes anywhere.

The index is a line of JSON (schema version, digests of both splits, the shards with their
samples and bytes) and then one line a sample, training before validation: the offset
of its image in its shard, in bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from fourmin.base.canonical import loads_strict
from fourmin.base.errors import FourminError
from fourmin.base.files import sync_folder, write_durably
from fourmin.base.mishaps import told
from fourmin.base.text import command
from fourmin.datasets.columns import Split
from fourmin.datasets.manifest import MANIFEST_NAME, SPLITS, Manifest

SCHEMA_VERSION = 1
INDEX_NAME = "fourmin-shards.txt"
GENERATING = ".fourmin-generate"
"""A file beside shards that are being generated."""
BLOCK = 512
"""Tar's unit: headers take one, contents a whole number of them."""
IMAGE_AT = 3 * BLOCK
"""Where an image begins in its sample: after the class's header and text, and its own header."""
_NAME = re.compile(r"(train|val)-[0-9]{6,9}\.tar")
END = bytes(2 * BLOCK)
"""What ends a tar archive."""
_MODE_AND_OWNER = b"0000644\0" + b"0000000\0" * 2
_TIME = b"\0" + b"00000000000\0"
_TYPE = (b"0".ljust(101, b"\0") + b"ustar\x0000").ljust(BLOCK - 156, b"\0")
_CHECK = sum(_MODE_AND_OWNER + _TIME + _TYPE + b" " * 8)
"""What these add to a header's checksum, which counts its own field as blanks."""


@dataclass(frozen=True)
class Shard:
    """One shard: samples `first` to `first + samples - 1` of a split, in `bytes` bytes."""

    name: str
    split: str
    first: int
    samples: int
    bytes: int

    def indices(self) -> range:
        return range(self.first, self.first + self.samples)


def padded(size: int) -> int:
    """`size` rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def member_header(name: str, size: int) -> bytes:
    """The header block of a regular file in a ustar archive (POSIX.1-1988).

    Written here and not by a library, whose choices for unused fields have changed over time.
    Mode 644, owner 0, time 0. `name` is ASCII of less than 100 characters.
    """
    own, digits = name.encode("ascii").ljust(100, b"\0"), b"%011o" % size
    check = b"%06o\0 " % (_CHECK + sum(own) + sum(digits))
    return b"".join((own, _MODE_AND_OWNER, digits, _TIME, check, _TYPE))


def image_header(split: Split, index: int) -> bytes:
    suffix = "png" if split.paths[index].lower().endswith(".png") else "jpg"
    return member_header(f"{index:09d}.{suffix}", split.sizes[index])


def before_image(split: Split, index: int) -> bytes:
    """All of a sample that stands before its image: IMAGE_AT bytes."""
    return class_member(index, split.labels[index]) + image_header(split, index)


def class_member(index: int, label: int) -> bytes:
    """The first member of a sample, which holds its class."""
    text = b"%d" % label
    return member_header(f"{index:09d}.cls", len(text)) + text.ljust(BLOCK, b"\0")


@contextmanager
def writing_shard(path: Path) -> Iterator[BinaryIO]:
    """A file for the samples of a shard, which becomes `path` when it is whole. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.write(END)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def padding(size: int) -> bytes:
    """What stands behind an image of `size` bytes."""
    return bytes(padded(size) - size)


def lay_out(manifest: Manifest, shard_bytes: int) -> list[Shard]:
    """The shards of a dataset: each is full before one sample more would exceed `shard_bytes`."""
    shards: list[Shard] = []
    for name in SPLITS:
        split = manifest.split(name)
        first, size = 0, len(END)
        for index in range(len(split) + 1):
            more = IMAGE_AT + padded(split.sizes[index]) if index < len(split) else 0
            if index == len(split) or (index > first and size + more > shard_bytes):
                number = sum(shard.split == name for shard in shards)
                shards.append(Shard(f"{name}-{number:06d}.tar", name, first, index - first, size))
                first, size = index, len(END)
            size += more
    return shards


def offsets(manifest: Manifest, shards: Sequence[Shard]) -> Iterator[int]:
    """Where the image of each sample begins in its shard, training before validation."""
    for shard in shards:
        at = 0
        sizes = manifest.split(shard.split).sizes
        for index in shard.indices():
            yield at + IMAGE_AT
            at += IMAGE_AT + padded(sizes[index])


@dataclass(frozen=True)
class ShardIndex:
    """What the index of a folder of shards says; `offsets` by split and sample index."""

    shards: tuple[Shard, ...]
    offsets: dict[str, array[int]]

    @classmethod
    def load(cls, folder: Path, manifest: Manifest) -> ShardIndex:
        """Read the index in `folder`, and hold it against the manifest.

        Raises FourminError, naming the file, the reason and the next step, for any fault.
        """
        path = folder / INDEX_NAME
        next_step = f"write it again with: {command('data', 'prepare', 'SOURCE', folder)}"
        with told(f"cannot read the index of the shards {path}", next_step):
            data = path.read_bytes()
        with told(
            f"the index of the shards {path} is not valid",
            next_step,
            (ValueError, KeyError, TypeError, AttributeError),
        ):
            return cls._parse(data, manifest)

    @classmethod
    def _parse(cls, data: bytes, manifest: Manifest) -> ShardIndex:
        line, _, body = data.partition(b"\n")
        header: Any = loads_strict(line)
        if header["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"the schema version is not {SCHEMA_VERSION}")
        if header["offsets_sha256"] != hashlib.sha256(body).hexdigest():
            raise ValueError("its offsets have changed since it was written, or it was cut short")
        if header["digests"] != {name: manifest.digest(name) for name in SPLITS}:
            raise ValueError("it belongs to other images than the manifest beside it")
        shards = tuple(Shard(**entry) for entry in header["shards"])
        if not all(_NAME.fullmatch(shard.name) for shard in shards):
            raise ValueError("a shard in it has a name that no shard has")
        numbers = array("q", map(int, body.split()))
        counts = {name: len(manifest.split(name)) for name in SPLITS}
        for name in SPLITS:
            mine = [shard for shard in shards if shard.split == name]
            ends = [0, *(shard.first + shard.samples for shard in mine)]
            if [*(shard.first for shard in mine), counts[name]] != ends:
                raise ValueError(f"its shards do not hold each image of {name} once")
        if len(numbers) != sum(counts.values()):
            raise ValueError("it has not one offset for each image")
        found = {"train": numbers[: counts["train"]], "val": numbers[counts["train"] :]}
        return cls(shards, found)


def write_index(folder: Path, manifest: Manifest, shards: Sequence[Shard]) -> None:
    """Write the index of finished shards. Raises OSError."""
    body = "".join(f"{offset}\n" for offset in offsets(manifest, shards)).encode()
    header = {
        "schema_version": SCHEMA_VERSION,
        "offsets_sha256": hashlib.sha256(body).hexdigest(),
        "digests": {name: manifest.digest(name) for name in SPLITS},
        "shards": [asdict(shard) for shard in shards],
    }
    write_durably(folder / INDEX_NAME, json.dumps(header).encode() + b"\n" + body)


def holds_shards(folder: Path) -> bool:
    """Whether `folder` is one of shards, finished or not, rather than a tree."""
    return (folder / INDEX_NAME).exists() or next(folder.glob("*.tar"), None) is not None


def require_finished(folder: Path) -> None:
    """Raise FourminError where the writing of the shards in `folder` did not come to its end."""
    if not (folder / INDEX_NAME).exists() or not (folder / MANIFEST_NAME).exists():
        how = ("generate", "fractals") if (folder / GENERATING).exists() else ("prepare", "SOURCE")
        raise FourminError(
            f"the shards in {folder} are not finished",
            "manifest and index are written last, and one of them is not there",
            f"go on with: {command('data', *how, folder)}",
        )


class Sample(NamedTuple):
    """One sample as it stands in a shard: its image's bytes, or what is wrong with it."""

    number: int
    data: bytes
    fault: str


def read_samples(path: Path, shard: Shard, split: Split) -> Iterator[Sample]:
    """Every sample of the shard in `path`, compared with what the manifest asks for.

    Each byte counts: headers, class, image (by size and SHA-256) and padding. Raises
    FourminError when the file is not as long as it should be or does not end as an archive
    does, and OSError.
    """
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        if length != shard.bytes:
            raise FourminError(f"{shard.name} has {length:,} bytes instead of {shard.bytes:,}")
        for index in shard.indices():
            size = split.sizes[index]
            before = file.read(IMAGE_AT)
            data = file.read(size)
            behind = file.read(padded(size) - size)
            yield Sample(index, data, _fault(split, index, before, data, behind))
        if file.read() != END:
            raise FourminError(f"{shard.name} does not end as a tar archive does")


def _fault(split: Split, index: int, before: bytes, data: bytes, behind: bytes) -> str:
    if before != before_image(split, index):
        return "its tar headers or its class have changed"
    if hashlib.sha256(data).digest() != split.hashes[32 * index : 32 * index + 32]:
        return "its bytes have changed: the manifest lists another SHA-256"
    return "the padding behind it has changed" if any(behind) else ""


def sample_name(shard: Shard, split: Split, index: int) -> str:
    return f"{shard.name}, sample {index:09d} ({split.name}/{split.paths[index]})"
