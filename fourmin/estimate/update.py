"""What an optimizer costs each worker: state, and the time to go through it.

It costs no communication: every worker updates all weights from the same mean gradient, and the
norms of LARS and LAMB are of whole layers, which each worker has.
"""

from __future__ import annotations

from dataclasses import dataclass

from fourmin.estimate.models import FP32_BYTES, load_shape
from fourmin.estimate.profile import Profile
from fourmin.recipe.optimizers import OPTIMIZERS


@dataclass(frozen=True)
class Update:
    """Bytes of FP32 state, and the least seconds of an update: its bytes at the memory's rate, None
    where the profile does not say it.
    """

    state_bytes: int
    seconds: float | None

    def describe(self) -> str:
        least = "" if self.seconds is None else f", {1e3 * self.seconds:.2f} ms at least"
        return f"{self.state_bytes / 1e6:,.0f} MB{least}"


def updates(model: str, profile: Profile) -> dict[str, Update]:
    """Of a model by each optimizer."""
    elements, rate = load_shape(model).elements, profile.memory_bandwidth
    return {
        name: Update(
            FP32_BYTES * len(entry.tensors) * elements,
            entry.moved * elements / rate if rate else None,
        )
        for name, entry in OPTIMIZERS.items()
    }
