"""Writing files so that a kill or a power cut leaves the old or the new one, never half of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError


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
    with temporary.open("wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


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
    probe = folder / f".fourmin-probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise _not_writable(folder, purpose, error.strerror or str(error)) from None


def require_writable(folder: Path, purpose: str) -> Path:
    """The nearest folder at or above `folder` that is there. Nothing is written.

    Raises FourminError, as `ensure_writable_folder` does, where `folder` could not be made in it
    or written.
    """
    nearest = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not nearest.is_dir():
        raise _not_writable(folder, purpose, f"{nearest} is no folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise _not_writable(folder, purpose, f"nothing can be written in {nearest}")
    return nearest


def _not_writable(folder: Path, purpose: str, why: str) -> FourminError:
    return FourminError(
        f"cannot write to the {purpose} {folder}",
        why,
        "name another one, or change its permissions",
    )


def user_folder(variable: str, default: str) -> Path:
    """fourmin's folder below an XDG base directory, such as XDG_CACHE_HOME and `.cache`."""
    base = os.environ.get(variable, "")
    root = Path(base) if base.startswith("/") else Path.home() / default
    return root / "fourmin"


def rulesets_folder() -> Path:
    """The folder that holds one folder a ruleset version: in the package, or in its checkout."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "_rulesets"
    return packaged if packaged.is_dir() else package.parent / "rules"
