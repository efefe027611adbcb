"""What a command starts beside itself, and what ends with it, whatever ended it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from multiprocessing import parent_process
from pathlib import Path

from fourmin.base.errors import ENDING, INTERRUPTED, FourminError
from fourmin.base.files import require_writable
from fourmin.base.mishaps import told

LONGEST_SCRATCH = 90
"""Bytes of a scratch folder's path: a Unix socket in it has a path of less than 108."""
_OTHER = "name another one with TMPDIR"

_KEEPER = """
done= left=
read -r _ && done=yes
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ "$done" ] || left=$(grep -lsF -- "$1" /proc/[0-9]*/environ | tr -dc '0-9\\n')
    [ "$left" ] && kill -9 $left
    rm -rf -- "$1" && [ -z "$left" ] && exit
    sleep 0.2
done
"""
"""Reads until the command says that it is done, or has gone: then what it started for this folder,
which is in the environment of that, is ended first."""


class Scratch:
    """A temporary folder that is gone when the command is, also where that is killed.

    Raises FourminError where it cannot be made, has no room, or a socket no name in it.
    """

    def __init__(self) -> None:
        with told("no temporary folder can be written", _OTHER):
            root = Path(tempfile.gettempdir())
        self.path = root / f"fourmin-{secrets.token_hex(8)}"
        if len(os.fsencode(self.path)) > LONGEST_SCRATCH:
            why = f"{root} is longer than the path of a socket may be"
            raise FourminError("no use of the temporary folder", why, _OTHER)
        require_writable(root, "temporary folder")
        # Before the folder, so that there is no moment in which nobody would remove it.
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, "fourmin", str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what ends a group must not end it first
        )
        self.path.mkdir(mode=0o700)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it now, with all that it holds."""
        self._keeper.communicate(b"done\n")


def end_with_the_command() -> None:
    """In a process of a pool: what asks the whole group to end is the command's to answer; that
    ends this one by SIGTERM, in order. Gone is gone: an executor's processes would stay.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(INTERRUPTED))

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, name="fourmin-watch", daemon=True).start()
