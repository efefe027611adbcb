"""Which training step a run takes: decided when it is planned, and without torch.

Every "" below is no reason: the fast step can be taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fourmin.recipe.fields import is_auto
from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.system.hardware import compute_capabilities
from fourmin.system.software import triton_installed

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration

LEAST_CAPABILITY = (8, 0)
"""CUDA compute capability that the fast step's kernels need."""

DECIDED_THERE = "step: decided where the workers run, from their GPUs"


def against_training(config: Configuration) -> str:
    """Why the fast step cannot train `config`, whose device and precision are resolved."""
    optimizer = OPTIMIZERS.get(config.optimizer)
    if config.device != "cuda":
        return f"this run is on the {config.device}"
    if config.precision not in ("fp16", "bf16"):
        return f"the fast step is for fp16 and bf16, and this run is {config.precision}"
    if optimizer is None or not optimizer.fused:
        return f"the fast step has no update for {config.optimizer}"
    if config.recompute:
        return "the fast step keeps what blocks compute: it has no recompute"
    if config.gradient_density < 1:
        return "the fast step sends whole gradients: it has no gradient_density"
    return ""


def against_machine(capabilities: Sequence[str] | None, triton: bool) -> str | None:
    """Why the fast step cannot run on a node; None where that cannot be told.

    `capabilities` are those of the GPUs that a process there may use, such as `9.0`, and None
    where the driver does not say; `triton` is whether it is installed there.
    """
    if not triton:
        return "Triton is not installed where the workers run"
    if capabilities is None:
        return None
    if not capabilities:
        return "no GPU of a known compute capability is there"
    least = min(tuple(map(int, one.split("."))) for one in capabilities)
    if least < LEAST_CAPABILITY:
        needed, has = (".".join(map(str, one)) for one in (LEAST_CAPABILITY, least))
        return f"the fast step needs GPUs of compute capability {needed}, and one has {has}"
    return ""


def against_this_machine() -> str | None:
    """`against_machine` of this one, for this Python."""
    return against_machine(compute_capabilities(), triton_installed())


def with_step(config: Configuration, against_nodes: str | None) -> Configuration:
    """`config` with the step that AUTO comes to: fast unless something is against it.

    `against_nodes` is what `against_machine` said of where the workers run. AUTO stays where that
    is None and nothing else decides.
    """
    against = against_training(config) or against_nodes
    if not is_auto(config.step) or against is None:
        return config
    return dataclasses.replace(config, step="eager" if against else "fast")


def describe_step(config: Configuration, asked: str, against_nodes: str | None) -> str:
    """One line: the step that `config` has, `asked` before it was decided, and why."""
    if not is_auto(asked):
        return f"step: {config.step}, as asked for"
    if is_auto(config.step):
        return DECIDED_THERE
    against = against_training(config) or against_nodes
    return f"step: {config.step}" + (f", since {against}" if against else "")
