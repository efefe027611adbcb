"""What one look at the machine says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
