"""Gradients summed in FP16 over 2,048 ranks, in the order of each algorithm; all ranks simulated.

The gradients are those of ResNet-8's first step on handwritten digits, each rank's from its own
images; the loss is scaled as dynamic scaling would have it. Every addition is rounded to FP16. A
chain of additions, one rank after the other, is what a ring does to each part of a tensor: the
longest that a library may make of an all-reduce or a reduction. It may take trees, which lose less.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fourmin.recipe.allreduces import MOST_IN_RING
from fourmin.recipe.presets import load_preset
from fourmin.training.comm.fusion import last_factor, mean
from fourmin.training.models import build_model
from fourmin.training.precision import LossScaler

datasets = pytest.importorskip("sklearn.datasets")
RANKS, NODE, IMAGES = 2048, 8, 4


@pytest.fixture(scope="module")
def gradients() -> Tensor:
    """Of each rank, FP32, a row each: every 8th element."""
    torch.manual_seed(0)
    digits = datasets.load_digits()
    images = ((torch.from_numpy(digits.data).float() * 16 - 78) / 96).view(-1, 1, 8, 8)
    images = images.repeat(1, 3, 1, 1).repeat_interleave(2, 2).repeat_interleave(2, 3)
    labels = torch.from_numpy(digits.target)
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    generator = torch.Generator().manual_seed(1)
    rows = []
    for _ in range(RANKS):
        chosen = torch.randint(0, len(images), (IMAGES,), generator=generator)
        model.zero_grad()
        nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        rows.append(torch.cat([p.grad.flatten() for p in model.parameters()])[::8].clone())
    return torch.stack(rows)


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


def in_groups(terms: Tensor) -> Tensor:
    """Node by node, then over the nodes: hierarchical, and each column of the torus."""
    return chain(torch.stack([chain(node) for node in terms.split(NODE)]))


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "hierarchical": in_groups,
    "torus": in_groups,
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDERS)
def test_groups_sum_well_enough_and_little_is_flushed(gradients: Tensor, name: str) -> None:
    order = ORDERS[name]
    scale = settled_scale(order, gradients)
    assert error(averaged(order, gradients * scale), gradients, scale) <= 2e-3
    sent = (gradients * (scale / math.sqrt(RANKS))).half()
    flushed = ((sent == 0) & (gradients != 0)).double().mean()
    assert float(flushed) <= 1e-3


@pytest.mark.slow
def test_a_flat_ring_loses_more_with_every_rank(gradients: Tensor) -> None:
    scale = settled_scale(chain, gradients)
    errors = {}
    for ranks in (MOST_IN_RING // 8, MOST_IN_RING, RANKS):
        some = gradients[:ranks]
        errors[ranks] = error(averaged(chain, some * scale), some, scale)
    assert errors[MOST_IN_RING // 8] < errors[MOST_IN_RING] < 4e-3 < errors[RANKS]


def test_what_overflows_in_the_sum_is_found_after_it() -> None:
    scaled = torch.tensor([[0.5, 2.0**12]]).repeat(1024, 1)
    assert bool(torch.isfinite(scaled.half()).all()), "no rank sees it alone"
    scaler = LossScaler(torch.device("cpu"), 65536.0, 2000)
    for name, order in ORDERS.items():
        assert not scaler.unscale_and_check([averaged(order, scaled)]), name
        assert scaler.unscale_and_check([averaged(order, scaled / 4)]), name
