"""One writer for each campaign, also where the results folder is NFS or Lustre.

POSIX record locks (`fcntl.lockf`) are honoured between the clients of NFS and, with the
`flock` mount option, of Lustre; they vanish with their process, so a kill leaves nothing
stale. Where a file system refuses them, a lease file made by an exclusive `link` does the
same work; its holder is named in it, and a lease of a process that no longer lives on this
host is taken over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from fourmin.base.errors import FourminError

LOCK_NAME = ".lock"
UNSUPPORTED = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL})
"""What a file system says that has no record locks."""
_HELD = {errno.EACCES, errno.EAGAIN}


class CampaignLock:
    """A context manager that holds the campaign's folder for one writer."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self._descriptor: int | None = None
        self._lease: Path | None = None

    def __enter__(self) -> CampaignLock:
        """Take the lock. Raises FourminError when another process holds it."""
        while not self._taken():
            self._close()  # its holder removed the file after it was opened here
        return self

    def _taken(self) -> bool:
        """Lock the file; whether it is still the one that others will open."""
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 200, 0).decode(errors="replace").strip()
            self._close()
            if error.errno in _HELD:
                raise self._busy(holder) from None
            if error.errno not in UNSUPPORTED:
                raise
            self._take_lease()
            return True
        try:
            if not os.path.samestat(os.fstat(self._descriptor), os.stat(self._path)):
                return False
        except FileNotFoundError:
            return False
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{_identity()}\n".encode(), 0)
        return True

    def __exit__(self, *_: object) -> None:
        """Give the lock back. Its file goes as well: among submissions it would be a stray one."""
        with suppress(OSError):
            self._path.unlink()
        self._close()
        if self._lease is not None:
            self._lease.unlink(missing_ok=True)
            self._lease = None

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _busy(self, holder: str) -> FourminError:
        return FourminError(
            f"the campaign {self._path.parent} is being written by another process",
            f"its lock is held by {holder}" if holder else "its lock is held",
            "wait until that one ends, or stop it, and run the command again",
        )

    def _take_lease(self) -> None:
        lease = self._path.with_name(f"{LOCK_NAME}-lease")
        mine = self._path.with_name(f"{LOCK_NAME}-{_identity().replace(' ', '-')}")
        mine.write_text(f"{_identity()}\n")
        try:
            for _ in range(2):
                try:
                    os.link(mine, lease)
                except FileExistsError:
                    holder = lease.read_text(errors="replace").strip()
                    if not _is_dead_here(holder):
                        raise self._busy(holder) from None
                    lease.unlink(missing_ok=True)
                else:
                    self._lease = lease
                    return
            raise self._busy("a process that came first")
        finally:
            mine.unlink(missing_ok=True)


def _identity() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _is_dead_here(holder: str) -> bool:
    """Whether `holder` names a process of this host that no longer exists."""
    words = holder.split()
    if len(words) != 4 or words[3] != socket.gethostname() or not words[1].isdigit():
        return False
    return not Path(f"/proc/{words[1]}").exists()
