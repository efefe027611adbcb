"""All that a run needs to go on the same way, as a few flat tensors.

After an evaluation every rank holds the same weights, statistics and optimizer state. The rest
follows from the seed: the order of the data and, since each epoch seeds anew, every random number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from fourmin.base.errors import FourminError
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.data.order import OrderDigest
from fourmin.training.fast.choose import Step

State = dict[str, Tensor]
"""Tensors by name."""

LAYOUT, PROGRESS, ORDER = "layout", "progress", "order"
COUNTERS = ("performed", "loss_scale", "good_steps", "skipped_steps")


def pack(model: nn.Module, optimizer: Optimizer, step: Step, order: OrderDigest) -> State:
    """A copy, on the CPU, of what one rank's training has come to."""
    counters = step.state_dict()
    return {
        **flatten(training_state(model, optimizer)),
        PROGRESS: torch.tensor([counters[name] for name in COUNTERS], dtype=torch.float64),
        ORDER: torch.tensor([list(part) for part in order.parts], dtype=torch.uint8),
    }


def unpack(state: State, model: nn.Module, optimizer: Optimizer, step: Step) -> None:
    """Set model, optimizer and step to what was packed; the order is the caller's.

    Raises FourminError when it was another model or optimizer.
    """
    unflatten(state, training_state(model, optimizer))
    step.load_state_dict(dict(zip(COUNTERS, state[PROGRESS].tolist(), strict=True)))


def shared(state: State | None, like: State, place: WorkerPlace) -> State:
    """Rank 0's `state` on every rank, on its device; `like` gives names and sizes elsewhere.

    The order is left out: only rank 0 keeps it.
    """
    spread = {}
    for name in sorted(like.keys() - {ORDER}):
        tensor = (like if state is None else state)[name].to(place.device)
        dist.broadcast(tensor, src=0)
        spread[name] = tensor
    return spread


def training_state(model: nn.Module, optimizer: Optimizer) -> State:
    """All tensors that training changes, as they are: weights, buffers, the optimizer's state.

    The optimizer must have its state from the start, as `build_optimizer` makes it.
    """
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for kind, tensor in optimizer.state[parameter].items():
            state[f"{kind}.{name}"] = tensor
    return state


@torch.no_grad()
def flatten(tensors: State) -> State:
    """A copy of `tensors` on the CPU, one flat tensor for each kind of memory and type, and a
    digest of the layout.
    """
    flat = {kind: joined(members) for kind, members in _by_kind(tensors).items()}
    return {**flat, LAYOUT: _layout(tensors)}


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """A copy on the CPU of tensors of one type and device, each row-major, as one flat tensor."""
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    if flat.device.type == "cuda":
        return torch.empty_like(flat, device="cpu", pin_memory=True).copy_(flat)
    return flat


@torch.no_grad()
def unflatten(flat: State, tensors: State) -> None:
    """Set `tensors` in place to what `flatten` copied.

    Raises FourminError when they are not those that were copied.
    """
    if not torch.equal(flat[LAYOUT].cpu(), _layout(tensors)):
        raise FourminError(
            "the checkpoint is of another model or optimizer",
            next_step="go on with the configuration and the version of fourmin that wrote it",
        )
    for kind, members in _by_kind(tensors).items():
        parts = flat[kind].split([tensor.numel() for tensor in members])
        for tensor, part in zip(members, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))


def _by_kind(tensors: State) -> dict[str, list[Tensor]]:
    """Tensors of one type on one device: an optimizer may keep counts in the host's memory."""
    found: dict[str, list[Tensor]] = {}
    for tensor in tensors.values():
        found.setdefault(f"{tensor.device.type} {tensor.dtype}", []).append(tensor.detach())
    return found


def _layout(tensors: State) -> Tensor:
    text = repr([(name, str(t.dtype), tuple(t.shape)) for name, t in tensors.items()])
    return torch.tensor(list(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
