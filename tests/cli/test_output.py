"""What is shown while long work lasts."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

SCRIPT = """
import time
from fourmin.cli.output import working
with working("measuring"):
    time.sleep(0.3)
print("done")
"""


def test_a_terminal_sees_what_is_done_and_for_how_long() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=theirs, check=True,
            env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(theirs)
        shown = terminal.read(4096).decode()
    assert done.stdout == b"done\n"
    assert "measuring" in shown
    assert "0:00:00" in shown


def test_a_file_gets_nothing_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"done\n", b"")
