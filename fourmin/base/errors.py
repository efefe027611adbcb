"""The one error a user meets: what happened, why, and what to do next."""

from __future__ import annotations

USAGE = 2
"""Exit code for wrong usage, a bad configuration or a missing requirement."""
NOT_CONVERGED = 3
"""Exit code of `fourmin run` when a run did not reach the quality target."""
INTERRUPTED = 130
"""Exit code after an interrupt (Ctrl-C or SIGTERM)."""


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


def list_names(names: list[str] | tuple[str, ...]) -> str:
    """Names for an error message, sorted and separated by commas."""
    return ", ".join(sorted(names))
