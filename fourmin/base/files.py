"""Writing files so that a kill or a power cut leaves the old or the new one, never half of it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError

PROBE_BYTES = 16 * 1024
"""What a folder must have room for before anything is written there."""


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable (fsync of the directory)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write `data`, or its pieces, beside `path`, sync it, then rename it into place."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_given(path: Path, most: int = 1 << 24) -> bytes:
    """What a file holds that a user names. A FIFO that nobody writes to is empty, not waited for.

    Raises OSError, and ValueError for more than `most` bytes, which are not read.
    """

    def opened(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=opened) as file:
        os.set_blocking(file.fileno(), True)
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it holds more than {most:,} bytes")
    return data


def write_output(path: Path, data: bytes) -> None:
    """Write a file that a user names: whole or not at all, and through links; a pipe or a device
    is written to and stays what it is.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)
    else:
        write_durably(path.resolve(), data)


def require_writable_file(path: Path, purpose: str) -> None:
    """Raise FourminError where `write_output` could not write `path`, before there is anything to
    write. The folder is made.
    """
    if path.is_dir():
        raise _not_writable(path, purpose, "it is a folder")
    if not path.exists() or path.is_file():
        ensure_writable_folder(path.resolve().parent, f"folder of the {purpose}")
    elif not os.access(path, os.W_OK):
        raise _not_writable(path, purpose, os.strerror(errno.EACCES))


def append_line(path: Path, line: bytes) -> None:
    """Append `line` and a line end in one write, and make them durable.

    Raises OSError, leaving the file as it was, when the disk has no room for all of it.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        before = os.fstat(descriptor).st_size
        written = os.write(descriptor, line + b"\n")
        if written != len(line) + 1:
            os.ftruncate(descriptor, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def drop_torn_line(path: Path) -> None:
    """Cut what stands after the last line end of `path`."""
    with path.open("r+b") as file:
        data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            file.truncate(whole)
            file.flush()
            os.fsync(file.fileno())


def json_bytes(value: Any) -> bytes:
    """JSON for files that people read: two spaces of indent, UTF-8, one final newline."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def ensure_writable_folder(folder: Path, purpose: str) -> None:
    """Create `folder` and prove that it can be written.

    Raises FourminError that names the folder, its purpose and the reason.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, purpose, error.strerror or str(error)) from None
    require_writable(folder, purpose)


def require_writable(folder: Path, purpose: str) -> Path:
    """The nearest folder at or above `folder` that is there. Nothing is written that stays.

    Raises FourminError, as `ensure_writable_folder` does, where `folder` could not be made in it
    or nothing written: for want of permission or of room.
    """
    try:
        nearest = next(one for one in (folder, *folder.absolute().parents) if os.path.exists(one))
        with tempfile.TemporaryFile(dir=nearest, buffering=0) as probe:
            if probe.write(bytes(PROBE_BYTES)) != PROBE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(probe.fileno())
    except NotADirectoryError:
        raise _not_writable(folder, purpose, f"{nearest} is no folder") from None
    except OSError as error:
        why = f"{error.strerror or error} in {nearest}"
        raise _not_writable(folder, purpose, why) from None
    return nearest


def require_room(folder: Path, needed: int, what: str, take: str, option: str = "") -> None:
    """Raise FourminError unless `needed` bytes have room at or above `folder`, which is to hold
    `what`; `take` says it of their number. Another folder is named by `option`, where there is one.
    """
    nearest = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    free = shutil.disk_usage(nearest).free
    if needed > free:
        raise FourminError(
            f"there is no room for {what} in {folder}",
            f"{take} {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free",
            f"name a folder on another disk{option and f' with {option}, or leave it out'}",
        )


def _not_writable(folder: Path, purpose: str, why: str) -> FourminError:
    return FourminError(
        f"cannot write to the {purpose} {folder}",
        why,
        "name another one, or change its permissions",
    )


def user_folder(variable: str, default: str) -> Path:
    """fourmin's folder below an XDG base directory, such as XDG_CACHE_HOME and `.cache`."""
    base = os.environ.get(variable, "")
    try:
        root = Path(base) if base.startswith("/") else Path.home() / default
    except RuntimeError:
        raise FourminError(
            "this user has no home folder", "HOME is not set", f"set HOME or {variable}"
        ) from None
    return root / "fourmin"


def rulesets_folder() -> Path:
    """The folder that holds one folder a ruleset version: in the package, or in its checkout."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "_rulesets"
    return packaged if packaged.is_dir() else package.parent / "rules"
