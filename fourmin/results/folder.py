"""A folder that somebody else filled: listed once, read with limits, trusted in nothing.

Symlinks are never followed below the folder, special files never opened, and a name that could
mean another file elsewhere (`names.unsafe_name`, or equal to its neighbour's but for case) is a
fault. Faults are kept, never raised; what this process may not read is no fault, and is raised.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fourmin.base.canonical import JSON, StrictJSONError, loads_strict
from fourmin.base.mishaps import raise_if_ours
from fourmin.results.names import unsafe_name

MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_JSON_BYTES = 4 * 1024 * 1024
MAX_NAMES = 20_000
"""Most names that are looked at in one folder and all below it."""


@dataclass(frozen=True)
class Fault:
    """Why a name or a file was not taken as it is: one of `FAULTS`, the path and a sentence."""

    kind: str
    path: str
    message: str


FAULTS = {
    "symlink": "a symbolic link; links are not followed",
    "special": "neither a file nor a folder",
    "name": "a name that means another file, or none, on some system",
    "case": "differs from another name in the same folder by case alone",
    "unreadable": "cannot be read",
    "too-large": "has more bytes than the limit",
    "too-many": "the folder holds more names than the limit; the rest was not looked at",
    "too-deep": "the folder is nested deeper than a campaign can be; it was not looked at",
}
"""Every kind of fault, with its meaning."""


@dataclass(frozen=True)
class Contents:
    """Everything below a folder: paths relative to it, with `/`, sorted; and the faults."""

    files: tuple[str, ...]
    folders: tuple[str, ...]
    faults: tuple[Fault, ...]


def list_folder(root: Path, max_depth: int = 2, closed: Collection[str] = ()) -> Contents:
    """What lies in `root` and up to `max_depth` levels of folders.

    Names with a fault are left out, unless they differ by case alone. Folders of `closed` are not
    looked into.
    """
    files: list[str] = []
    folders: list[str] = []
    faults: list[Fault] = []
    waiting = [""]
    seen = 0
    while waiting:
        below = waiting.pop()
        lower: dict[str, str] = {}
        for entry in _entries(root / below, below, faults):
            seen += 1
            if seen > MAX_NAMES:
                faults.append(Fault("too-many", below, FAULTS["too-many"]))
                return Contents(tuple(sorted(files)), tuple(sorted(folders)), tuple(faults))
            path = f"{below}/{entry.name}" if below else entry.name
            unsafe = unsafe_name(entry.name)
            if unsafe:
                faults.append(Fault("name", path, unsafe))
                continue
            twin = lower.setdefault(entry.name.lower(), entry.name)
            if twin != entry.name:
                faults.append(Fault("case", path, f"differs from {twin} by case alone"))
            if entry.is_symlink():
                faults.append(Fault("symlink", path, FAULTS["symlink"]))
            elif entry.is_dir(follow_symlinks=False):
                folders.append(path)
                if path in closed:
                    continue
                if path.count("/") + 1 < max_depth:
                    waiting.append(path)
                else:
                    faults.append(Fault("too-deep", path, FAULTS["too-deep"]))
            elif entry.is_file(follow_symlinks=False):
                files.append(path)
            else:
                faults.append(Fault("special", path, FAULTS["special"]))
    return Contents(tuple(sorted(files)), tuple(sorted(folders)), tuple(faults))


def _entries(folder: Path, below: str, faults: list[Fault]) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise_if_ours(error)
        faults.append(Fault("unreadable", below, error.strerror or str(error)))


def read_bytes(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes | str:
    """The bytes of a regular file, or a fault's kind as a string, as `read_beginning` reads it."""
    data = read_beginning(path, max_bytes + 1)
    return "too-large" if len(data) > max_bytes and isinstance(data, bytes) else data


def read_beginning(path: Path, size: int) -> bytes | str:
    """At most `size` bytes of a regular file, or a fault's kind as a string.

    Never follows a link at `path` itself, and never waits for a pipe or a device.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise_if_ours(error)
        return "unreadable"
    # A file object refuses a folder with an exception and leaves its descriptor open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return "special"
    with open(descriptor, "rb") as file:
        try:
            return file.read(size)
        except OSError as error:
            raise_if_ours(error)
            return "unreadable"


def with_unix_line_ends(data: bytes) -> bytes:
    """`data` as it was before git converted all of its line ends to CRLF; itself if git did not.

    Git converts every line end of a file or none, and no file of a campaign has a carriage return.
    """
    first = data.find(b"\n")
    converted = first > 0 and data[first - 1] == ord("\r")
    if converted and data.count(b"\r\n") == data.count(b"\n"):
        return data.replace(b"\r\n", b"\n")
    return data


@dataclass(frozen=True)
class JsonFile:
    """A JSON file: its bytes, and by their strict reading its value or why it has none."""

    path: str
    data: bytes

    @cached_property
    def _read(self) -> tuple[JSON, StrictJSONError | None]:
        try:
            return loads_strict(self.data, max_bytes=MAX_JSON_BYTES), None
        except StrictJSONError as error:
            return None, error

    @property
    def value(self) -> JSON:
        return self._read[0]

    @property
    def error(self) -> StrictJSONError | None:
        return self._read[1]
