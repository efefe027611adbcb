"""A manifest in the form that processes of one machine share: its columns in a file to map.

The text stays the authority. The image is made from it for each run, in a folder of that run's,
and is read on the machine that made it alone: a line of JSON (version, byte order, class names,
and for each split its digest and, for each column, bytes and SHA-256), then the columns one after
the other, each from a multiple of 8 bytes on.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

from fourmin.base.mishaps import told
from fourmin.datasets.columns import Column, Paths, Split
from fourmin.datasets.manifest import SPLITS, Manifest, remember

VERSION = 2


def share_manifest(path: Path, image: Path) -> Manifest:
    """Read the manifest in `path`, and write `image` for the workers of this node.

    What is returned, and what this process remembers, is mapped from there too, so that a node
    holds it once. Raises FourminError as `Manifest.load` does, and where there is no room.
    """
    manifest = Manifest.load(path)
    step = "make room, or name a folder on another disk with TMPDIR"
    with told(f"cannot write the manifest for the workers to {image.parent}", step):
        write_image(manifest, image)
    mapped = replace(map_manifest(image), header=manifest.header)
    remember(mapped)
    return mapped


def map_manifest(image: Path, part: int = 0, parts: int = 1) -> Manifest:
    """The manifest in `image`, which stays on the disk until it is used.

    Of the columns' digests each `parts`-th from `part` on is checked: as many workers check each
    once. Raises FourminError where the image is another than was written.
    """
    with told(
        f"cannot read the manifest that was prepared for this run in {image}",
        "start the run again; where it comes again, name another folder with TMPDIR",
        (OSError, ValueError, KeyError, TypeError),
    ):
        with image.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _parse(data, part, parts)


def _columns(split: Split) -> list[memoryview[int]]:
    paths = split.paths
    numbers = (split.labels, split.sizes, split.widths, split.heights, paths.starts)
    return [_cast(column, "B") for column in (*numbers, split.hashes, paths.text)]


def _cast(view: memoryview[int], kind: str) -> memoryview[int]:
    # What is empty cannot be cast.
    return view.cast(kind) if view.nbytes else memoryview(array(kind))  # type: ignore[call-overload]


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def write_image(manifest: Manifest, image: Path) -> None:
    """Write the columns of `manifest` to `image`, under a temporary name first. Raises OSError."""
    columns = {name: _columns(manifest.split(name)) for name in SPLITS}
    header = {
        "version": VERSION,
        "byteorder": sys.byteorder,
        "classes": manifest.class_names,
        "pins": dict(manifest.pins),
        "about": dict(manifest.about),
        "splits": {
            name: {
                "sha256": manifest.digest(name),
                "columns": [[len(one), hashlib.sha256(one).hexdigest()] for one in columns[name]],
            }
            for name in SPLITS
        },
    }
    line = json.dumps(header).encode()
    temporary = image.with_name(f".{image.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(line.ljust(_padded(len(line) + 1) - 1) + b"\n")
        for name in SPLITS:
            for column in columns[name]:
                file.write(column)
                file.write(bytes(_padded(len(column)) - len(column)))
    os.replace(temporary, image)


def _parse(data: mmap.mmap, part: int, parts: int) -> Manifest:
    line = data.readline()
    header: Any = json.loads(line)
    if (header["version"], header["byteorder"]) != (VERSION, sys.byteorder):
        raise ValueError("another version of fourmin, or another kind of machine, wrote it")
    whole, at, number = memoryview(data), len(line), 0
    splits = {}
    for name in SPLITS:
        described = header["splits"][name]
        columns: list[memoryview[int]] = []
        for size, digest in described["columns"]:
            column = whole[at : at + size]
            checked = number % parts == part
            if len(column) != size or (checked and hashlib.sha256(column).hexdigest() != digest):
                raise ValueError(f"a column of {name} is not what was written")
            columns.append(column)
            at, number = at + _padded(size), number + 1
        splits[name] = _split(name, columns, described["sha256"])
    if at != len(whole):
        raise ValueError("it is not as long as was written")
    return Manifest(tuple(header["classes"]), splits, header["pins"], header["about"])


def _split(name: str, columns: list[memoryview[int]], digest: str) -> Split:
    numbers: list[Column] = [_cast(column, "q") for column in columns[:5]]
    labels, sizes, widths, heights, starts = numbers
    hashes, text = columns[5:]
    return Split(name, Paths(starts, text), labels, sizes, widths, heights, hashes, digest)
