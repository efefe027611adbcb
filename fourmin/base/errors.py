"""The one error a user meets: what happened, why, and what to do next."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable

USAGE = 2
"""Exit code for wrong usage, a bad configuration or a missing requirement."""
NOT_CONVERGED = 3
"""Exit code of `fourmin run` when a run did not reach the quality target."""
INTERNAL = 70
"""Exit code of an error that is fourmin's own."""
INTERRUPTED = 130
"""Exit code after an interrupt: Ctrl-C, SIGTERM, SIGHUP and other signals that ask for the end."""

ENDING = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "ALRM", "XCPU")
)
"""Signals that ask a command to end. What the shell has it ignore, as nohup does, it ignores."""


class Interrupted(BaseException):
    """A signal asks for the end of the command; its text is the signal's name."""


class FourminError(Exception):
    """An expected failure, shown on one screen without a traceback.

    `what` names the thing that failed, `why` the reason, `next_step` what the user can do;
    the process ends with `exit_code`.
    """

    def __init__(
        self, what: str, why: str = "", next_step: str = "", exit_code: int = USAGE
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step
        self.exit_code = exit_code

    def to_json(self) -> dict[str, str]:
        return {"what": self.what, "why": self.why, "next_step": self.next_step}

    def __str__(self) -> str:
        return "\n".join(part for part in (self.what, self.why, self.next_step) if part)


def list_names(names: Iterable[str]) -> str:
    """Names for an error message, sorted and separated by commas."""
    return ", ".join(sorted(names))


def unknown(what: str, given: str, known: Collection[str]) -> FourminError:
    """The error of a name that is none of `known`, with those that it may have been meant for."""
    from difflib import get_close_matches  # most commands meet no error

    near = get_close_matches(given, known, 3)
    return FourminError(
        what, f"near: {', '.join(near)}" if near else "", f"known: {list_names(known)}"
    )
