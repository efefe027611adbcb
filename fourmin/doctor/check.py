"""What one look at the machine says."""

from __future__ import annotations

from dataclasses import dataclass

OK = "ok"
WARNING = "warning"
MISSING = "missing"
"""How a check ends; what is `missing` stops every training run."""


@dataclass(frozen=True)
class Check:
    """A topic, what was found, and what to do where that is not good (empty where it is)."""

    topic: str
    status: str
    message: str
    next_step: str = ""
