"""Mixed precision: autocast for the passes, FP32 master weights, loss scaling for FP16.

Jia et al. 2018, section 3.1: forward and backward in half precision, weights and gradients cast
to FP32, LARS and the update in FP32. Parameters therefore always stay FP32; autocast casts them
for each convolution and matrix product and keeps batch normalization statistics and the loss in
FP32.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from fourmin.base.errors import FourminError

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""The types by the names of a configuration."""

MIN_LOSS_SCALE = 1.0
MAX_LOSS_SCALE = 2.0**24


class LossScaler:
    """Dynamic loss scaling: halve on overflow, double after `growth_interval` good steps.

    torch.amp.GradScaler is not used. It unscales the gradients that an optimizer holds, once for
    each optimizer, and decides by itself whether to step. Here gradients live in a few flat fused
    buffers: they are checked and unscaled there, in one pass after the all-reduce, so that all
    ranks see the same values and take the same decision without another collective, and the
    worker, which also owns the schedule and the log, decides.

    The scale stays between 1 and 2^24. With a power of two as the initial scale, scaling and
    unscaling change exponents only and round nothing.
    """

    def __init__(self, device: torch.device, initial_scale: float, growth_interval: int) -> None:
        if not MIN_LOSS_SCALE <= initial_scale <= MAX_LOSS_SCALE:
            raise FourminError(
                f"loss_scale={initial_scale} is out of range",
                next_step=f"use a power of two from {MIN_LOSS_SCALE:g} to {MAX_LOSS_SCALE:g}",
            )
        if growth_interval < 1:
            raise FourminError(f"loss_scale_growth_interval={growth_interval} must be at least 1")
        self._growth_interval = growth_interval
        self._good_steps = 0
        self._skipped_steps = 0
        # On the device, so that scaling reads no host value inside a step.
        self._scale = torch.empty((), dtype=torch.float32, device=device)
        self._inverse = torch.empty_like(self._scale)
        self._overflow = torch.zeros_like(self._scale)
        self._set(float(initial_scale))

    def _set(self, scale: float) -> None:
        self._value = scale
        self._scale.fill_(scale)
        self._inverse.fill_(1.0 / scale)

    @property
    def loss_scale(self) -> float:
        return self._value

    @property
    def skipped_steps(self) -> int:
        return self._skipped_steps

    def scale(self, loss: Tensor) -> Tensor:
        """`loss` (0-dim) in FP32 times the loss scale."""
        return loss.float() * self._scale

    @torch.no_grad()
    def unscale_and_check(self, buffers: Sequence[Tensor]) -> bool:
        """Divide `buffers` by the loss scale, in place; whether every element was finite.

        One pass over the buffers and one device synchronisation.
        """
        self._overflow.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(
            list(buffers), self._overflow, self._inverse
        )
        return self._overflow.item() == 0.0

    def update(self, finite: bool) -> None:
        """Take note of a step that was performed (`finite`) or must be skipped."""
        if not finite:
            self._skipped_steps += 1
            self._good_steps = 0
            self._set(max(self._value / 2, MIN_LOSS_SCALE))
            return
        self._good_steps += 1
        if self._good_steps == self._growth_interval:
            self._good_steps = 0
            self._set(min(self._value * 2, MAX_LOSS_SCALE))

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep; plain numbers."""
        return {
            "loss_scale": self._value,
            "good_steps": self._good_steps,
            "skipped_steps": self._skipped_steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._good_steps = int(state["good_steps"])
        self._skipped_steps = int(state["skipped_steps"])
        self._set(float(state["loss_scale"]))


class Precision:
    """How a run computes: FP32, or BF16 or FP16 autocast over FP32 master weights.

    A step is: loss under `autocast()`; `scale(loss).backward()`; all-reduce of the flat gradient
    buffers; `unscale_and_check(buffers)`; the optimizer step if it says so; `update(finite)`.

    Only FP16 scales the loss and can skip steps. BF16 has FP32's range and needs neither, so for
    it and for FP32 the check touches nothing and costs nothing: that the loss is finite is for
    the worker to see, when it reads the loss for the log.
    Raises FourminError for an unknown precision, FP16 on a device other than CUDA, and a loss
    scale or growth interval out of range.
    """

    def __init__(
        self,
        name: str,
        device: torch.device | str,
        loss_scale: float = 65536.0,
        growth_interval: int = 2000,
    ) -> None:
        if name not in DTYPES:
            raise FourminError(
                f"unknown precision {name!r}", next_step=f"known: {', '.join(DTYPES)}"
            )
        self.name = name
        self.device = torch.device(device)
        if name == "fp16" and self.device.type != "cuda":
            raise FourminError(
                f"fp16 needs a CUDA GPU, but this run uses the {self.device.type}",
                "the CPU has no FP16 kernels worth training with",
                "--precision bf16 or --precision fp32",
            )
        self._scaler = (
            LossScaler(self.device, loss_scale, growth_interval) if name == "fp16" else None
        )

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the forward pass and the loss; a new one each time."""
        if self.name == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=DTYPES[self.name])

    @property
    def loss_scale(self) -> float:
        """The current loss scale; 1 without loss scaling."""
        return self._scaler.loss_scale if self._scaler else 1.0

    @property
    def skipped_steps(self) -> int:
        """Steps skipped for an FP16 overflow so far."""
        return self._scaler.skipped_steps if self._scaler else 0

    def scale(self, loss: Tensor) -> Tensor:
        return self._scaler.scale(loss) if self._scaler else loss

    def unscale_and_check(self, buffers: Sequence[Tensor]) -> bool:
        """Whether the optimizer may step; takes the loss scale out of `buffers`, in place.

        `buffers` are the flat gradient buffers after the all-reduce, so all ranks agree.
        """
        return self._scaler.unscale_and_check(buffers) if self._scaler else True

    def update(self, finite: bool) -> None:
        """Adapt the loss scale after a step, with what `unscale_and_check` said."""
        if self._scaler:
            self._scaler.update(finite)

    def state_dict(self) -> dict[str, Any]:
        """The loss scaler's state; empty without one."""
        return self._scaler.state_dict() if self._scaler else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._scaler:
            self._scaler.load_state_dict(state)
