"""Tar archives as sources: what lies in them, read in place, and those that must be unpacked first.

An image in a tar lies in one piece and is read from there. What is packed (gzip, zip, parquet,
CIFAR-10's arrays) is written once to a tar in the work folder, under a name made from the source's
path, size and time of change; a finished one is kept when the command goes on after a kill.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NamedTuple

from fourmin.base.errors import FourminError
from fourmin.base.mishaps import told
from fourmin.datasets.cifar import cifar_images
from fourmin.datasets.images import whole
from fourmin.datasets.manifest import is_image_name
from fourmin.datasets.parquet import parquet_images

_OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
)
"""What is raised for an archive that cannot be read to its end, whatever it is packed with."""
_LONGEST_LABEL = 64 << 10


class Member(NamedTuple):
    """An image in an archive: the parts of its path, where it begins, its bytes, its label."""

    parts: tuple[str, ...]
    at: int
    size: int
    said: Mapping[str, Any]


def packing(path: Path) -> bytes:
    """The magic number of the compression of a file, or nothing. Raises FourminError."""
    with told(f"cannot read {path}", "make it readable for this user"), path.open("rb") as file:
        start = file.read(6)
    found = next((magic for magic in _OPENERS if start.startswith(magic)), b"")
    if found and path.suffix.lower() == ".tar":
        raise FourminError(
            f"{path} is packed with {_OPENERS[found].__module__}, though its name says tar",
            "the official archives of images are plain tars: this is another file, or repacked",
            f"unpack it, or, where that is meant, name it {path.name}.gz as what it is",
        )
    return found


def members(path: Path) -> Iterator[Member]:
    """The images in a tar, and in the tars within. Raises FourminError."""
    # Unbuffered: headers lie an image apart, and a buffer would read all between them.
    with told(f"cannot read {path}"), whole(path, BROKEN), path.open("rb", buffering=0) as file:
        yield from _walk(file, 0, os.fstat(file.fileno()).st_size, ())


def _walk(file: io.FileIO, start: int, end: int, above: tuple[str, ...]) -> Iterator[Member]:
    where = f"{'/'.join(above)}: " if above else ""

    def entries() -> Iterator[tarfile.TarInfo]:
        file.seek(start)
        with tarfile.TarFile(fileobj=file) as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # It would hold all of them.
                if member.isfile():
                    if member.offset_data + member.size > end:
                        raise ValueError(f"{where}{member.name} is cut short")
                    yield member
            file.seek(archive.offset)
            if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise ValueError(f"{where}the archive has no end: it is cut short")

    for (folder, _), group in groupby(entries(), _sample):
        sample, said = [*group], dict[str, Any]()
        for member in sample:
            if member.name.endswith((".cls", ".json", ".txt")) and member.size < _LONGEST_LABEL:
                file.seek(member.offset_data)
                said |= _label(member.name, file.read(member.size))
        for member in sample:
            parts = (*above, *filter(None, folder.split("/")), member.name.rpartition("/")[2])
            if is_image_name(member.name):
                yield Member(parts, member.offset_data, member.size, said)
            elif member.name.lower().endswith(".tar"):
                inside = member.offset_data, member.offset_data + member.size
                yield from _walk(file, *inside, (*parts[:-1], parts[-1][:-4]))
            else:
                yield Member(parts, member.offset_data, member.size, {})


def _sample(member: tarfile.TarInfo) -> tuple[str, str]:
    """What members of one sample of a WebDataset share: folder, and name up to its first dot."""
    folder, _, name = member.name.removeprefix("./").rpartition("/")
    return folder, name.partition(".")[0]


def _label(name: str, data: bytes) -> dict[str, Any]:
    text = data.decode(errors="replace").strip()
    if name.endswith(".json"):
        content = json.loads(text)
        return {**content, "json": True} if isinstance(content, dict) else {}
    return {"label": text} if name.endswith(".cls") or text.isdigit() else {}


def unpacked(path: Path, work: Path) -> Path:
    """Where the tar that is made from `path` lies, or will lie."""
    stat = path.stat()
    known = f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}"
    return work / f"{hashlib.sha256(known.encode(errors='surrogateescape')).hexdigest()[:24]}.tar"


def unpack(work: Path, path: Path) -> Path:
    """Write the images of a packed file to a tar in `work`, if that is not there.

    Raises FourminError.
    """
    target = unpacked(path, work)
    if target.exists():
        return target
    temporary = target.with_suffix(".part")
    step = "make room or name another folder; what is unpacked is kept"
    with told(f"cannot unpack {path} to {work}", step), whole(path, BROKEN):
        with tarfile.open(temporary, "w", format=tarfile.GNU_FORMAT) as out:
            for name, data in _contents(path):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                out.addfile(member, io.BytesIO(data))
        os.replace(temporary, target)
    return target


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix.lower() == ".parquet":
        yield from parquet_images(path)
        return
    for name, data in _packed_files(path):
        yield from cifar_images(name, data) or [(name, data)]


def _packed_files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    yield entry.filename, archive.read(entry)
        return
    opened: IO[bytes] = _OPENERS[packing(path)](path, "rb")  # type: ignore[operator]
    with opened, tarfile.open(fileobj=opened, mode="r|") as archive:
        for member in iter(partial(archive.next), None):
            archive.members = []  # type: ignore[attr-defined]
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file.read()
