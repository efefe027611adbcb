"""Buckets of gradients: parameters' places in flat FP32 memory, and what autograd made besides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import Parameter

from fourmin.recipe.buckets import lay_out


@dataclass(eq=False)
class Slot:
    """The place of one parameter's gradient: ``numel`` elements from ``offset`` of a bucket."""

    name: str
    parameter: Parameter
    offset: int
    view: Tensor
    arrived: bool = False

    @property
    def made(self) -> Tensor | None:
        """The gradient where autograd made it a tensor of its own, in place of the view."""
        grad = self.parameter.grad
        return None if grad is None or grad.data_ptr() == self.view.data_ptr() else grad


@dataclass(eq=False)
class Bucket:
    """Gradients that are reduced together: ``flat`` is the FP32 buffer, 1-D; ``wire`` is the
    half-precision copy that is sent, None if ``flat`` itself is sent.
    """

    slots: tuple[Slot, ...]
    flat: Tensor
    wire: Tensor | None
    missing: int = field(init=False)

    def __post_init__(self) -> None:
        self.missing = len(self.slots)

    @torch.no_grad()
    def take_in(self) -> None:
        """Copy into ``flat`` what autograd made, and give the parameters their views again."""
        copy_all([(slot.view, made) for slot in self.slots if (made := slot.made) is not None])
        for slot in self.slots:
            slot.parameter.grad = slot.view

    @property
    def sent(self) -> Tensor:
        """The tensor that goes through the all-reduce."""
        return self.flat if self.wire is None else self.wire


def copy_all(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Copy into the first of each pair the second, of the same shape, in few launches."""
    # torch's grouped copy wants sources of one type, or it copies one by one.
    flat: defaultdict[torch.dtype, tuple[list[Tensor], list[Tensor]]]
    flat = defaultdict(lambda: ([], []))
    for target, source in pairs:
        if _is_dense(source) and _same_order(source, target):
            # As vectors, since it wants equal strides too, and those of a 1x1 convolution's weight
            # have several names.
            targets, sources = flat[source.dtype]
            targets.append(_vector(target))
            sources.append(_vector(source))
        else:
            target.copy_(source)
    for targets, sources in flat.values():
        torch._foreach_copy_(targets, sources)


def _vector(tensor: Tensor) -> Tensor:
    """The memory of a dense tensor, in its order."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def _same_order(a: Tensor, b: Tensor) -> bool:
    """Whether two dense tensors of one shape keep their elements in the same order."""
    wide = [i for i, size in enumerate(a.shape) if size > 1]
    return [a.stride(i) for i in wide] == [b.stride(i) for i in wide]


def check_parameters(named: Sequence[tuple[str, Parameter]]) -> None:
    """Raises ValueError where gradients of these cannot lie in buckets: none at all, one twice,
    another type than FP32, several devices, or memory with gaps.
    """
    if not named:
        raise ValueError("no parameter needs a gradient")
    seen: dict[int, str] = {}
    device = named[0][1].device
    for name, parameter in named:
        if id(parameter) in seen:
            raise ValueError(f"{seen[id(parameter)]} and {name} are the same parameter")
        seen[id(parameter)] = name
        if parameter.dtype != torch.float32:
            raise ValueError(f"{name} is {parameter.dtype}: gradients are kept in FP32 only")
        if parameter.device != device:
            raise ValueError(f"{name} is on {parameter.device}, others on {device}")
        if not _is_dense(parameter):
            raise ValueError(f"{name} does not fill its memory: strides {parameter.stride()}")


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill a block of memory without overlaps or gaps, in any order."""
    dense: bool = torch.ops.aten.is_non_overlapping_and_dense(tensor)
    return dense


def make_bucket(part: Sequence[tuple[str, Parameter]], wire_dtype: torch.dtype | None) -> Bucket:
    """A bucket of these parameters, whose gradients become views of it."""
    offsets, end = lay_out([parameter.numel() for _, parameter in part])
    flat = torch.zeros(end, dtype=torch.float32, device=part[0][1].device)
    slots = []
    for (name, parameter), offset in zip(part, offsets, strict=True):
        # The parameter's strides, or adding a channels_last gradient would walk memory twice.
        view = flat.as_strided(parameter.shape, parameter.stride(), offset)
        parameter.grad = view
        slots.append(Slot(name, parameter, offset, view))
    wire = None if wire_dtype is None else torch.zeros_like(flat, dtype=wire_dtype)
    return Bucket(tuple(slots), flat, wire)
