"""LARS or SGD for all parameters in four kernel launches, without the host: `FusedUpdate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from torch.optim import SGD, Optimizer

from fourmin.training.fast.kernels import update as kernels
from fourmin.training.optim.lars import Lars
from fourmin.training.precision import MAX_LOSS_SCALE, MIN_LOSS_SCALE

CHUNK = 8192
"""Elements that one program updates."""
_TRITON_TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


class FusedUpdate:
    """What `optimizer.step()` does, with unscaling, the check for overflow and the loss scale.

    `optimizer` is a `Lars` or `torch.optim.SGD` over FP32 parameters with FP32 gradients in
    place; its momentum buffers are made here if it has none and used from then on, so its
    state_dict stays what it is. The learning rate comes from `learning_rates` (FP32, on the
    device), by the number of steps performed; beyond its end the last one holds.
    `halves` maps parameters to half-precision copies with the same memory order, which each
    update writes too. The gradients are multiplied by `factor`, for one that whoever made them
    left out. `scaled`: the gradients carry the loss scale, a step with a gradient that
    is not finite is skipped, and the scale adapts as `precision.LossScaler` does.

    Launching the kernels reads nothing on the host and allocates nothing: a CUDA graph can hold
    them. Raises ValueError for another optimizer or for memory that is not aligned to 16 bytes.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        halves: Mapping[Tensor, Tensor],
        learning_rates: Sequence[float],
        *,
        scaled: bool,
        loss_scale: float,
        growth_interval: int,
        factor: float = 1.0,
    ) -> None:
        if not isinstance(optimizer, (Lars, SGD)):
            raise ValueError(f"no fused update for {type(optimizer).__name__}")
        self._lars = isinstance(optimizer, Lars)
        self._scaled = scaled
        self._growth_interval = growth_interval
        self._factor = factor
        self._velocities: list[Tensor] = []
        rows: list[list[int]] = []
        first_chunk = [0]
        groups: list[int] = []
        settings = []
        kinds = {half.dtype for half in halves.values()} or {torch.float32}
        (kind,) = kinds
        self._half = _TRITON_TYPES[kind]
        for index, group in enumerate(optimizer.param_groups):
            settings.append(_settings(group))
            for parameter in group["params"]:
                velocity = optimizer.state[parameter].setdefault(
                    "momentum_buffer", torch.zeros_like(parameter)
                )
                if velocity is None:  # torch's SGD leaves None there before its first step
                    velocity = torch.zeros_like(parameter)
                    optimizer.state[parameter]["momentum_buffer"] = velocity
                self._velocities.append(velocity)
                rows += _rows(parameter, velocity, halves.get(parameter), len(groups))
                first_chunk.append(len(rows))
                groups.append(index)
        self._nesterov = any(bool(group.get("nesterov")) for group in optimizer.param_groups)
        self._segments = max(16, 1 << (len(groups) - 1).bit_length())
        self._parameters = len(groups)
        self._chunks = len(rows)
        device = self._velocities[0].device
        self._table = torch.tensor(rows, dtype=torch.int64, device=device)
        self._first_chunk = torch.tensor(first_chunk, dtype=torch.int32, device=device)
        self._group = torch.tensor(groups, dtype=torch.int32, device=device)
        self._settings = torch.tensor(settings, dtype=torch.float32, device=device)
        self._learning_rates = torch.tensor(learning_rates, dtype=torch.float32, device=device)
        self._partial = torch.zeros(self._chunks, 2, device=device)
        self._rate = torch.zeros(self._parameters, device=device)
        self._bad = torch.zeros(self._parameters, dtype=torch.int32, device=device)
        self._state = torch.zeros(4, dtype=torch.int32, device=device)
        self.scale = torch.ones(3, device=device)
        """The loss scale, what the gradients are multiplied by (factor over loss scale), and the
        factor; on the device."""
        self.reset(loss_scale)

    def reset(self, loss_scale: float) -> None:
        """Forget velocities, counts and what the loss scale has become; addresses stay."""
        for velocity in self._velocities:
            velocity.zero_()
        self._state.zero_()
        self._set_scale(loss_scale if self._scaled else 1.0)

    @property
    def tensors(self) -> list[Tensor]:
        """Everything of its own that an update changes."""
        return [*self._velocities, self._state, self.scale]

    def scaled(self, loss: Tensor) -> Tensor:
        """`loss` in FP32 times the loss scale as it is on the device."""
        return loss.float() * self.scale[0]

    def launch(self) -> None:
        """Queue one update on the current stream."""
        kernels.norms[(self._chunks,)](
            self._table, self.scale, self._partial, BLOCK=CHUNK, num_warps=8
        )
        kernels.rates[(self._parameters,)](
            self._partial, self._first_chunk, self._group, self._settings, self._learning_rates,
            self._learning_rates.numel() - 1, self._state, self._rate, self._bad,
            LARS=self._lars, BLOCK=512, num_warps=4,
        )  # fmt: skip
        kernels.update[(self._chunks,)](
            self._table, self.scale, self._rate, self._bad, self._group, self._settings,
            self._parameters, LARS=self._lars, NESTEROV=self._nesterov, SCALED=self._scaled,
            HALF=self._half, SEGMENTS=self._segments, BLOCK=CHUNK, num_warps=8,
        )  # fmt: skip
        kernels.advance[(1,)](
            self._state, self.scale, self._bad, self._parameters, self._growth_interval,
            MIN_LOSS_SCALE, MAX_LOSS_SCALE, SCALED=self._scaled, SEGMENTS=self._segments,
            num_warps=1,
        )  # fmt: skip

    def read(self) -> dict[str, Any]:
        """Steps performed and the loss scaler's state_dict; waits for the device."""
        performed, skipped, good, _ = self._state.tolist()
        return {
            "performed": performed,
            "loss_scale": self.scale.tolist()[0],
            "good_steps": good,
            "skipped_steps": skipped,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `read` gave; the velocities are the optimizer's."""
        counts = [int(state[name]) for name in ("performed", "skipped_steps", "good_steps")]
        self._state.copy_(torch.tensor([*counts, 0], dtype=torch.int32))
        self._set_scale(float(state["loss_scale"]))

    def _set_scale(self, value: float) -> None:
        self.scale.copy_(torch.tensor([value, self._factor / value, self._factor]))


def _settings(group: Mapping[str, Any]) -> list[float]:
    adapt = group.get("adapt", False)
    return [
        group["weight_decay"],
        group.get("eta", 0.0),
        group.get("epsilon", 0.0),
        float(adapt),
        float(group.get("clip", False)),
        group["momentum"],
    ]


def _rows(
    parameter: Tensor, velocity: Tensor, half: Tensor | None, segment: int
) -> list[list[int]]:
    grad = parameter.grad
    if grad is None or grad.stride() != parameter.stride():
        raise ValueError("every parameter needs a gradient of its own memory order")
    if velocity.stride() != parameter.stride():
        raise ValueError("a momentum buffer has not the memory order of its parameter")
    starts = [parameter.data_ptr(), grad.data_ptr(), velocity.data_ptr()]
    half_start = 0 if half is None else half.data_ptr()
    if any(start % 16 for start in [*starts, half_start]):
        raise ValueError("parameters, gradients and copies must be aligned to 16 bytes")
    size = parameter.numel()
    rows = []
    for begin in range(0, size, CHUNK):
        addresses = [start + 4 * begin for start in starts]
        copy = half_start + half.element_size() * begin if half is not None else 0
        rows.append([*addresses, copy, min(CHUNK, size - begin), segment])
    return rows
