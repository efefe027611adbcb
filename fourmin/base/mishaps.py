"""What a command says when the world around it fails: the thing, the reason, the next step."""

from __future__ import annotations

import errno
import os
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from fourmin.base.errors import INTERNAL, INTERRUPTED, FourminError, Interrupted

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a file system says that has no room: trying again cannot help."""
LASTING = FULL | {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR}
"""What stays so until somebody changes it."""
OF_THE_READER = frozenset(
    getattr(errno, name)
    for name in ("EACCES", "EPERM", "EIO", "ESTALE", "EMFILE", "ENFILE", "ENOMEM")
)
"""What keeps this process from a file, and says nothing of the file: nobody may judge by it."""
TRACEBACK_VARIABLE = "FOURMIN_TRACEBACK"
Kinds: TypeAlias = "type[Exception] | tuple[type[Exception], ...]"

_PACKAGE = Path(__file__).resolve().parents[1]
_LESS = "end what else runs here, or ask for a larger limit"
_NEXT_STEPS = (
    (FULL, "make room there"),
    ({errno.EACCES, errno.EPERM}, "change its permissions, or be a user who may"),
    ({errno.EROFS}, "name a place that can be written"),
    ({errno.ENOENT, errno.ENOTDIR}, "see that it is there, and stays while a command runs"),
    ({errno.EISDIR, errno.EEXIST}, "name another path, or move what lies there"),
    ({errno.EMFILE, errno.ENFILE}, "ulimit -n 65536, or the site's limits.conf"),
    ({errno.EAGAIN, errno.ENOMEM}, _LESS),
    ({errno.ENAMETOOLONG}, "name a shorter path"),
    ({errno.EADDRINUSE, errno.EADDRNOTAVAIL}, "name another port or address"),
    ({errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EBADF}, "see whether what it is on is well"),
)


def explained(error: BaseException) -> FourminError:
    """What to tell a user of anything that can end a command."""
    if isinstance(error, FourminError):
        return error
    if isinstance(error, (Interrupted, KeyboardInterrupt)):
        how = str(error)
        return FourminError(f"interrupted{how and f' by {how}'}", exit_code=INTERRUPTED)
    if isinstance(error, socket.gaierror):
        return FourminError(
            "a host name does not resolve", error.strerror or str(error), "name its address"
        )
    if isinstance(error, OSError):
        return _of_the_system(error)
    if "Symlink loop" in str(error):  # pathlib's, before Python 3.13
        return FourminError("a link leads to itself", str(error), "name another path")
    if isinstance(error, MemoryError) or "start new thread" in str(error):
        return FourminError("there is too little memory", str(error), _LESS)
    if isinstance(error, ImportError):
        step = "install fourmin again; where it says so, open more files: ulimit -n 65536"
        return FourminError("a part of the installation cannot be loaded", str(error), step)
    if isinstance(error, UnicodeError):
        return FourminError("a text is not UTF-8", str(error), "name and write things in UTF-8")
    return FourminError(
        "this is an error of fourmin itself",
        f"{type(error).__name__}: {error}\n{frames(error)}",
        f"please report it, with what {TRACEBACK_VARIABLE}=1 shows when it is set",
        INTERNAL,
    )


@contextmanager
def told(what: str, next_step: str = "", kind: Kinds = OSError) -> Iterator[None]:
    """Raise FourminError, which says what could not be done, for an error of this kind within."""
    try:
        yield
    except kind as error:
        if isinstance(error, ModuleNotFoundError) and error.name:
            why = f"the package {error.name.partition('.')[0]} is missing"
        else:
            why = getattr(error, "strerror", None) or str(error)
        raise FourminError(what, why, next_step) from error


@contextmanager
def going_on(next_step: str) -> Iterator[None]:
    """Tell of what the system refuses within, with a step that goes on when it is mended."""
    try:
        yield
    except OSError as error:
        one = explained(error)
        raise FourminError(one.what, one.why, f"{one.next_step}, then: {next_step}") from error


def raise_if_ours(error: Exception) -> None:
    """Raise it again where it says nothing of the file that could not be read."""
    if isinstance(error, OSError) and error.errno in OF_THE_READER:
        raise error


def frames(error: BaseException, most: int = 6) -> str:
    """The innermost places that `error` came through, a line each."""
    found = traceback.extract_tb(error.__traceback__)[-most:]
    return "\n".join(f"in {one.name} ({_relative(one.filename)}:{one.lineno})" for one in found)


def show_traceback(error: BaseException) -> None:
    """For who mends fourmin, where FOURMIN_TRACEBACK is set."""
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exception(error, file=sys.stderr)


def _of_the_system(error: OSError) -> FourminError:
    name = error.filename
    named = isinstance(name, (str, bytes, os.PathLike))
    what = f"cannot use {os.fsdecode(name)}" if named else "the system refused what was asked of it"
    step = next((step for numbers, step in _NEXT_STEPS if error.errno in numbers), "")
    if "temporary directory" in str(error):  # tempfile's own words
        step = "make room in one of them, or name another folder with TMPDIR"
    return FourminError(
        what, error.strerror or str(error), step or "put it right, and run the command again"
    )


def _relative(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(_PACKAGE.parent)) if _PACKAGE in path.parents else path.name
