"""Gradients summed in FP16 over 2,048 ranks, in the order of each algorithm; all ranks simulated.

The gradients are those of ResNet-8's first step on handwritten digits, each rank's from its own
images; the loss is scaled as dynamic scaling would have it. Every addition is rounded to FP16. The
composed all-reduces make the calls that training makes. In a collective a chain of additions, one
rank after the other, is what a ring does to each part of a tensor: the longest that a library may
make of an all-reduce or a reduction. It may take trees, which lose less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from fourmin.recipe.allreduces import MOST_IN_RING
from fourmin.recipe.calls import Stage, calls, hierarchical, piece_sizes, torus
from fourmin.recipe.presets import load_preset
from fourmin.recipe.topology import Topology
from fourmin.training.comm.fusion import last_factor, mean
from fourmin.training.models import build_model
from fourmin.training.precision import LossScaler

datasets = pytest.importorskip("sklearn.datasets")
RANKS, NODE, IMAGES = 2048, 8, 4
TOPOLOGY = Topology.build(0, RANKS, NODE)


@pytest.fixture(scope="module")
def gradients() -> Tensor:
    """Of each rank, FP32, a row each: every 8th element."""
    torch.manual_seed(0)
    digits = datasets.load_digits()
    images = ((torch.from_numpy(digits.data).float() * 16 - 78) / 96).view(-1, 1, 8, 8)
    images = images.repeat(1, 3, 1, 1)
    labels = torch.from_numpy(digits.target)
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    torch.func.replace_all_batch_norm_modules_(model)  # without running means, which vmap refuses
    parameters = {name: each.detach() for name, each in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        logits = torch.func.functional_call(model, parameters, (images,))
        return nn.functional.cross_entropy(logits, labels)

    generator = torch.Generator().manual_seed(1)
    chosen = torch.randint(0, len(images), (RANKS, IMAGES), generator=generator)
    every_rank = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0), chunk_size=512)
    found = every_rank(parameters, images[chosen], labels[chosen])
    return torch.cat([each.flatten(1) for each in found.values()], 1)[:, ::8].clone()


def chain(terms: Tensor) -> Tensor:
    """Rows added one after the other, each sum rounded to their type."""
    total = terms[0].clone()
    for term in terms[1:]:
        total += term
    return total


def pairs(terms: Tensor) -> Tensor:
    """Rows added in pairs, pairs of pairs, and so on."""
    while len(terms) > 1:
        terms = terms[0::2] + terms[1::2]
    return terms[0]


def composed(stages: Sequence[Stage], terms: Tensor) -> Tensor:
    """Rows of ranks summed by the calls that all of them make; the sum as the last rank has it."""
    sizes = piece_sizes(stages, terms.shape[1], terms.element_size(), pipeline_bytes=1 << 11)
    held = nn.functional.pad(terms, (0, sum(sizes) - terms.shape[1]))
    # The ranks of a collective hold equal calls.
    made = {call for rank in range(len(terms)) for call in calls(stages, sizes, rank)}
    for call in sorted(made, key=lambda call: (call.tick, call.piece)):
        start = sum(sizes[: call.piece]) + call.start
        parts = held[list(call.ranks), start : start + call.count]
        kind, share = stages[call.stage].kind, call.count // len(call.ranks)
        own = [slice(start + i * share, start + (i + 1) * share) for i in range(len(call.ranks))]
        if kind == "reduce":
            held[call.ranks[0], start : start + call.count] = chain(parts)
        elif kind == "reduce_scatter":
            total = chain(parts)
            for rank, at in zip(call.ranks, own, strict=True):
                held[rank, at] = total[at.start - start : at.stop - start]
        elif kind == "all_gather":
            gathered = [held[rank, at] for rank, at in zip(call.ranks, own, strict=True)]
            held[list(call.ranks), start : start + call.count] = torch.cat(gathered)
        else:
            total = chain(parts) if kind == "all_reduce" else parts[0]
            held[list(call.ranks), start : start + call.count] = total
    return held[-1, : terms.shape[1]]


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "hierarchical": partial(composed, hierarchical(TOPOLOGY)),
    "torus": partial(composed, torus(TOPOLOGY)),
    "halving-doubling": pairs,
}


class Summed:
    """An all-reduce over the simulated ranks: `tensor` is that of one of them."""

    name = "summed"

    def __init__(self, order: Callable[[Tensor], Tensor], terms: Tensor) -> None:
        self._order, self._terms = order, terms

    def all_reduce(self, tensor: Tensor) -> None:
        factor = last_factor(len(self._terms), halves=True)
        tensor.copy_(self._order((self._terms * factor).to(tensor.dtype)))


def averaged(order: Callable[[Tensor], Tensor], scaled: Tensor) -> Tensor:
    """The mean over all ranks as a bucket holds it after the all-reduce, still scaled."""
    flat = scaled[0].clone()
    mean(flat, Summed(order, scaled), len(scaled), torch.empty_like(flat, dtype=torch.float16))
    return flat


def error(got: Tensor, gradients: Tensor, scale: float) -> float:
    exact = gradients.double().mean(0)
    return float((got.double() / scale - exact).norm() / exact.norm())


def settled_scale(order: Callable[[Tensor], Tensor], gradients: Tensor) -> float:
    """Where dynamic scaling ends: the largest power of 2 whose sum is finite."""
    scale = load_preset("resnet50-64k").loss_scale
    while not bool(torch.isfinite(averaged(order, gradients * scale)).all()):
        scale /= 2
    return scale


@pytest.mark.parametrize("name", ORDERS)
def test_groups_sum_well_enough_and_little_is_flushed(gradients: Tensor, name: str) -> None:
    order = ORDERS[name]
    scale = settled_scale(order, gradients)
    assert error(averaged(order, gradients * scale), gradients, scale) <= 2e-3
    sent = (gradients * (scale / math.sqrt(RANKS))).half()
    flushed = ((sent == 0) & (gradients != 0)).double().mean()
    assert float(flushed) <= 1e-3


def test_a_flat_ring_loses_more_with_every_rank(gradients: Tensor) -> None:
    scale = settled_scale(chain, gradients)
    errors = {}
    for ranks in (MOST_IN_RING // 8, MOST_IN_RING, RANKS):
        some = gradients[:ranks]
        errors[ranks] = error(averaged(chain, some * scale), some, scale)
    assert errors[MOST_IN_RING // 8] < errors[MOST_IN_RING] < 4e-3 < errors[RANKS]


def test_what_overflows_in_the_sum_is_found_after_it() -> None:
    scaled = torch.tensor([[0.5, 2.0**12]]).repeat(RANKS, 1)
    assert bool(torch.isfinite(scaled.half()).all()), "no rank sees it alone"
    scaler = LossScaler(torch.device("cpu"), 65536.0, 2000)
    for name, order in ORDERS.items():
        assert not scaler.unscale_and_check([averaged(order, scaled)]), name
        assert scaler.unscale_and_check([averaged(order, scaled / 4)]), name
