"""What a machine that trains has, for a command that may stand elsewhere.

The plan of a campaign describes the nodes. Where the command's own Python is not theirs, because
workers run in a container or it stands on a login node, one of them is asked:
`python -m fourmin.system.survey` prints it as JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fourmin.system.capture import capture_system
from fourmin.system.hardware import compute_capabilities, usable_gpus
from fourmin.system.software import triton_installed

MARK = "fourmin-survey "
"""Before the JSON: a container's start may print other things."""


@dataclass(frozen=True)
class Survey:
    """The captured system, and the GPUs that a process may use."""

    system: Mapping[str, Any]
    gpus: int
    capabilities: Sequence[str] | None
    """CUDA compute capabilities of those GPUs; None where the driver does not say."""
    triton: bool
    """Whether it is installed."""

    @classmethod
    def of_this_machine(cls) -> Survey:
        return cls(
            capture_system(),
            usable_gpus(),
            compute_capabilities(),
            triton_installed(),
        )

    def to_text(self) -> str:
        """One line."""
        return MARK + json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Survey:
        """What `to_text` gave, somewhere in `text`. Raises ValueError where it is not."""
        line = next((one for one in text.splitlines() if MARK in one), "")
        try:
            return cls(**json.loads(line.partition(MARK)[2]))
        except TypeError:
            raise ValueError("not a survey of this version") from None


if __name__ == "__main__":
    print(Survey.of_this_machine().to_text())  # noqa: T201
