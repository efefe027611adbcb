"""How a command begins and ends: its streams, its signals, and what it says where something fails.

Only what is quick is imported at the top, so that an interrupt in the first moments ends in order.
"""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from fourmin.base.errors import ENDING, INTERRUPTED, NOT_CONVERGED, USAGE, FourminError, Interrupted

IN_ORDER_SECONDS = 10.0
"""How long a command may take to end before another signal cuts that off."""


def run(commands: Callable[[], object]) -> None:
    """Run the command line. Whatever happens, it is told on one screen, without a traceback."""
    _take_signals()
    error: BaseException | None = None
    code: Any = 0
    try:
        _in_utf8()
        _open_streams()
        commands()
    except SystemExit as ended:
        code = ended.code
        if isinstance(ended.__context__, BrokenPipeError):  # none of the streams, which never raise
            error = ended.__context__
    except BaseException as other:
        error = other
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(_end(error, code))


class Stream(io.FileIO):
    """A standard stream that never stops a command: it remembers why it could not be written."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        """All of `data`, once a pipe that does not wait has room; nothing after a failure."""
        while self.failure is None:
            try:
                written = super().write(data)
            except OSError as error:
                self.failure = error
                break
            if written is not None:
                return written
            select.select((), (self,), ())
        return len(data)


def require_output(
    next_step: str = "give it room or another place; what was written to files stays",
    exit_code: int = USAGE,
) -> None:
    """Raise FourminError where standard output was lost. A reader that went away lacks nothing."""
    sys.stdout.flush()
    failure = getattr(getattr(sys.stdout.buffer, "raw", None), "failure", None)
    if failure is not None and failure.errno != errno.EPIPE:
        why = failure.strerror or str(failure)
        raise FourminError("standard output cannot be written", why, next_step, exit_code)


def _end(error: BaseException | None, code: Any) -> Any:
    """The exit code, when what failed has been told and nothing is left running."""
    children = sys.modules.get("multiprocessing")
    for child in children.active_children() if children else ():
        child.kill()
    try:
        if error is not None:
            raise error
        require_output()
    except BaseException as raised:
        # Imported late because it takes a tenth of what `--help` takes.
        from fourmin.base.mishaps import explained, show_traceback
        from fourmin.cli.output import print_error

        told = explained(raised)
        show_traceback(raised)
        print_error(told)
        code = code if code in (NOT_CONVERGED, INTERRUPTED) else told.exit_code
    sys.stderr.flush()
    return code


def _take_signals() -> None:
    told: dict[str, float] = {}
    """The signal that asked first, and when."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        now, name = time.monotonic(), signal.Signals(number).name
        if now - told.setdefault(next(iter(told), name), -IN_ORDER_SECONDS) < IN_ORDER_SECONDS:
            return  # what ends in order is not cut off by the same wish
        first = next(iter(told))
        told[first] = now
        raise Interrupted("" if first == "SIGINT" else first)

    def unraisable(found: Any) -> None:
        if not isinstance(found.exc_value, Interrupted):
            sys.__unraisablehook__(found)
            return
        told.update(dict.fromkeys(told, -IN_ORDER_SECONDS))  # it came where nobody could take it
        signal.setitimer(signal.ITIMER_REAL, 0.01)

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    signal.signal(signal.SIGALRM, interrupt)
    sys.unraisablehook = unraisable


def _in_utf8() -> None:
    """Start again in Python's UTF-8 mode where names would depend on the locale."""
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"  # for the processes that this one starts
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _open_streams() -> None:
    # What is opened later must not become a standard stream that the caller has closed. Nothing
    # can be written to one for reading, and nobody misses what standard error said.
    for descriptor, how in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, how)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        now = getattr(sys, name)
        if now is getattr(sys, f"__{name}__"):  # nobody took it for a test
            raw = Stream(descriptor, "w", closefd=False)
            stream = io.TextIOWrapper(
                io.BufferedWriter(raw),
                getattr(now, "encoding", None) or "utf-8",
                "backslashreplace",
                line_buffering=name == "stderr" or raw.isatty(),
            )
            setattr(sys, name, stream)
