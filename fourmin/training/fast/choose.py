"""Which step a run gets, and why not the fast one. Imports without Triton and without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from fourmin.base.errors import FourminError
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.recipe.steps import against_machine
from fourmin.system.software import triton_installed
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.models.alexnet import AlexNet
from fourmin.training.models.resnet import ResNet
from fourmin.training.optim.lars import Lars
from fourmin.training.precision import Precision
from fourmin.training.step import EagerStep, HostUpdate, Update

if TYPE_CHECKING:
    from fourmin.training.fast.step import FastStep


Step: TypeAlias = "EagerStep | FastStep"
"""Either step; both are called, saved and restored alike."""


def reason_against(model: nn.Module, optimizer: Optimizer, precision: Precision) -> str | None:
    """Why the fast step cannot train this; None if it can."""
    reason = _reason_against_update(optimizer, precision)
    if reason is not None:
        return reason
    if precision.name == "fp32":
        return "its kernels are for fp16 and bf16, and this run is fp32"
    if not isinstance(model, (ResNet, AlexNet)):
        return f"it has no kernels for {type(model).__name__}"
    return None


def _reason_against_update(optimizer: Optimizer, precision: Precision) -> str | None:
    """Why the fused update cannot serve this; None if it can."""
    if precision.device.type != "cuda":
        return f"it needs a CUDA GPU, and this run uses the {precision.device.type}"
    capability = torch.cuda.get_device_capability(precision.device)
    against = against_machine([".".join(map(str, capability))], triton_installed())
    if against:
        return against
    if not isinstance(optimizer, (Lars, SGD)):
        return f"it has no fused {type(optimizer).__name__}"
    return None


def refuse_another_step(reason: str) -> None:
    """The `say` of those for whom no other step may take the place of the one asked for."""
    raise FourminError(reason, next_step="--set step=eager")


def build_step(
    kind: str,
    model: nn.Module,
    optimizer: Optimizer,
    reducer: GradientReducer,
    precision: Precision,
    schedule: LearningRateSchedule,
    label_smoothing: float,
    *,
    total_steps: int,
    growth_interval: int,
    world_size: int,
    say: Callable[[str], None],
) -> Step:
    """The step called `kind` ("eager" or "fast").

    Where the fast step is asked for and cannot be had, `say` gets one line with the reason, and
    the eager step is returned: the result is the same.
    """
    if kind == "fast":
        reason = reason_against(model, optimizer, precision)
        if reason is None:
            from fourmin.training.fast.step import FastStep

            return FastStep(
                model, optimizer, reducer, precision, schedule, label_smoothing,
                total_steps=total_steps, growth_interval=growth_interval, world_size=world_size,
            )  # fmt: skip
        say(f"step: eager instead of fast, since {reason}")
    update: Update
    if _reason_against_update(optimizer, precision) is None:
        from fourmin.training.fast.update import FusedUpdate

        # The host would wait for each step's gradients, to see that they are finite.
        update = FusedUpdate(
            optimizer, {}, [schedule(step) for step in range(total_steps)],
            scaled=precision.name == "fp16", loss_scale=precision.loss_scale,
            growth_interval=growth_interval, factor=reducer.leave_division(),
        )  # fmt: skip
    else:
        update = HostUpdate(optimizer, reducer.flat_buffers, precision, schedule)
    return EagerStep(model, update, reducer, precision, label_smoothing)
