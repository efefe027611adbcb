"""Deep Gradient Compression on real gloo processes, against the paper's algorithm in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from comm_cases import SHAPES, gradient_of
from local_world import LocalWorld

from fourmin.base.errors import FourminError
from fourmin.recipe.compression import density_in
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.training.comm.compression import SAMPLE, largest

GetWorld = Callable[[int], LocalWorld]
SMALL = ["conv", "linear", "bias"]
PLAIN: dict[str, Any] = {
    "momentum": 0.9, "nesterov": False, "weight_decay": 1e-3, "base_learning_rate": 0.01,
}  # fmt: skip


def config(**changes: Any) -> Configuration:
    settings = {
        "optimizer": "sgd", "division": "open", "precision": "fp32", "nesterov": False,
        "device": "cpu", "step": "eager", "decoder": "cpu",
    }  # fmt: skip
    return replace(load_preset("digits"), **settings | changes)


class Oracle:
    """All workers in one process, in float64, weight by weight, as algorithm 4 of the paper has it:
    the largest by sorting, and the mean by adding.
    """

    def __init__(self, names: list[str], ranks: int, **changes: Any) -> None:
        self.ranks, self.changes = ranks, changes
        torch.manual_seed(3)
        self.weights = {name: torch.randn(SHAPES[name]).double().numpy() for name in names}
        zeros = {name: np.zeros(SHAPES[name]) for name in names}
        self.momentum = [{k: v.copy() for k, v in zeros.items()} for _ in range(ranks)]
        self.left = [{k: v.copy() for k, v in zeros.items()} for _ in range(ranks)]
        self.decay = {k: v.copy() for k, v in zeros.items()}
        self.bytes = 0

    def step(self, number: int, density: float) -> None:
        c = self.changes
        m, nesterov, clip = c["momentum"], c["nesterov"], c.get("gradient_clip", 0.0)
        for name, w in self.weights.items():
            total = np.zeros_like(w)
            for rank in range(self.ranks):
                g = gradient_of(name, rank, number).double().numpy()
                if w.ndim == 1:
                    total += g
                    continue
                norm = math.sqrt((g * g).sum())
                if clip and norm > clip / math.sqrt(self.ranks):
                    g = g * (clip / math.sqrt(self.ranks) / norm)
                u, v = self.momentum[rank][name], self.left[rank][name]
                u[...] = m * (u + g) if nesterov else m * u + g
                v += u + g if nesterov else u
                count = max(1, math.ceil(density * w.size))
                chosen = np.argsort(-np.abs(v), axis=None, kind="stable")[:count]
                total.reshape(-1)[chosen] += v.reshape(-1)[chosen]
                u.reshape(-1)[chosen] = 0
                v.reshape(-1)[chosen] = 0
            count = max(1, math.ceil(density * w.size))
            self.bytes += 4 * w.size if w.ndim == 1 else 8 * count
            mean = total / self.ranks
            added = mean if w.ndim == 1 else c["weight_decay"] * w
            buffer = self.decay[name]
            buffer[...] = m * buffer + added
            move = added + m * buffer if nesterov else buffer
            w -= c["base_learning_rate"] * (move if w.ndim == 1 else move + mean)


@pytest.mark.parametrize("threshold", [0, 1 << 20])
@pytest.mark.parametrize(
    "changes",
    [
        {"gradient_density": 0.02},
        {"gradient_density": 0.01, "density_warmup_epochs": 4, "nesterov": True},
        {"gradient_density": 0.1, "gradient_clip": 20.0, "momentum": 0.5},
    ],
    ids=["plain", "nesterov, warm-up", "clipped"],
)
def test_fifty_steps_of_four_workers_are_the_papers(
    world: GetWorld, changes: dict[str, Any], threshold: int
) -> None:
    """With a restart in the middle; the same bits on all ranks, the bytes by count."""
    changes = PLAIN | changes
    rows = world(4).run(
        "compressed_steps", steps=50, threshold_bytes=threshold, names=SMALL, **changes
    )
    oracle, settings = Oracle(SMALL, 4, **changes), config(**changes)
    for number in range(50):
        oracle.step(number, density_in(settings, number // 5 + 1))
    assert len({row["digest"] for row in rows}) == 1
    for name, exact in oracle.weights.items():
        got = np.array(rows[0]["weights"][name])
        assert np.allclose(got, exact, rtol=0, atol=2e-5 * np.abs(exact).max()), name
    assert [row["bytes"] for row in rows] == [oracle.bytes] * 4
    elements = sum(math.prod(SHAPES[name]) for name in SMALL)
    assert rows[0]["saved"][0] == 4
    assert rows[0]["saved"][1] >= 2 * elements
    assert rows[1]["saved"] is None


def test_what_is_sent_whole_has_the_momentum_of_sgd(world: GetWorld) -> None:
    changes = PLAIN | {"gradient_density": 0.01, "nesterov": True}
    rows = world(2).run("compressed_steps", steps=50, threshold_bytes=0, names=SMALL, **changes)
    torch.manual_seed(3)
    bias = [torch.nn.Parameter(torch.randn(SHAPES[name]).double()) for name in SMALL][-1]
    optimizer = torch.optim.SGD([bias], lr=0.01, momentum=0.9, nesterov=True)
    for number in range(50):
        bias.grad = sum(gradient_of("bias", rank, number).double() for rank in range(2)) / 2
        optimizer.step()
    assert np.allclose(rows[0]["weights"]["bias"], bias.detach().numpy(), atol=1e-4)


def test_a_threshold_from_a_sample_finds_the_largest() -> None:
    """What is taken are the largest, however many: nothing that is left exceeds it."""
    for seed, size, share in [(1, 40_000, 0.001), (2, 300_000, 0.01), (3, 2_000_003, 0.001)]:
        generator = torch.Generator().manual_seed(seed)
        values = torch.randn(size, generator=generator) ** 3
        count = math.ceil(size * share)
        chosen = largest(values, count)
        assert len(set(chosen.tolist())) == len(chosen)
        assert 0.4 * count <= len(chosen) <= count
        left = values.abs().clone()
        left[chosen] = 0
        assert float(values[chosen].abs().min()) >= float(left.max())
    for values in (torch.zeros(SAMPLE * 3), torch.ones(SAMPLE * 3), torch.arange(5.0)):
        assert len(largest(values, 4)) == 4


def test_large_weights_are_alike_on_all_ranks_and_send_what_is_counted(world: GetWorld) -> None:
    changes = PLAIN | {"gradient_density": 0.005}
    rows = world(4).run(
        "compressed_steps", steps=10, threshold_bytes=0, names=["large", "bias"], **changes
    )
    assert len({row["digest"] for row in rows}) == 1
    assert rows[0]["bytes"] == 10 * (8 * 180 + 4 * 30)


def test_the_density_falls_by_equal_factors() -> None:
    """Lin et al.'s: 75%, 93.75%, 98.4375%, 99.6%, 99.9% of gradients are kept back."""
    one = config(gradient_density=0.001, density_warmup_epochs=4)
    found = [density_in(one, epoch) for epoch in range(1, 8)]
    published = [0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001, 0.001]
    assert found == pytest.approx(published, rel=0.02)
    assert density_in(config(gradient_density=0.01), 1) == 0.01


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gradient_density": 0.01, "optimizer": "lars"}, "optimizer=lars"),
        ({"gradient_density": 0.01, "device": "cuda", "precision": "fp16"}, "precision=fp16"),
        ({"gradient_density": 0.01, "gradient_dtype": "bf16"}, "gradient_dtype=bf16"),
        ({"gradient_density": 0.01, "deterministic": True}, "deterministic=True"),
        ({"density_warmup_epochs": 2}, "sent in part"),
        ({"gradient_clip": 2.0}, "sent in part"),
        (
            {"gradient_density": 0.1, "device": "cuda", "precision": "bf16", "step": "fast"},
            "step=fast",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], says: str) -> None:
    config(gradient_density=0.01).check()
    with pytest.raises(FourminError, match=says):
        config(**changes).check()
