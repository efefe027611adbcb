"""Every judge there is, by source and by what it is given."""

from __future__ import annotations

from fourmin.rules.foreign import logs, sets, training
from fourmin.rules.foreign.judge import Judge

JUDGES: tuple[Judge, ...] = tuple(
    value
    for module in (logs, training, sets)
    for value in vars(module).values()
    if isinstance(value, Judge)
)
"""In the order of their modules."""
