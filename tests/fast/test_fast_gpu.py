"""The captured step in FP16 and BF16 on a GPU, held to the eager step."""

from __future__ import annotations

import pytest
import torch
from fast_cases import Learnable, Trained, make, rate

from fourmin.training.data.order import OrderDigest
from fourmin.training.evaluate import evaluate
from fourmin.training.fast.choose import build_step
from fourmin.training.state import pack, unpack

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
STEPS, BATCH = 200, 64


def weights_of(trained: Trained) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trained.model.parameters()])


class Batch:
    def __init__(self, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.images, self.labels = pair


def accuracy(trained: Trained, device: torch.device) -> float:
    data = Learnable(device, 32)
    data.batch(1)  # other noise than in training
    batches = [Batch(data.batch(250)) for _ in range(4)]
    correct, counted = evaluate(trained.model, batches, trained.precision, 1000)
    return correct / counted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [("resnet20", "fp16"), ("resnet20", "bf16")],
)
def test_200_steps_stay_beside_the_eager_ones(
    device: torch.device, name: str, precision: str
) -> None:
    """The band: first three losses within 1%, means of 20 losses within 0.1, the last within 0.05.

    Both steps round in half precision in different places, so single losses part after some
    tens of steps, as those of two eager runs of different cuDNN algorithms do; most where the
    loss falls fastest.
    """
    losses = {}
    scores = {}
    statistics = {}
    for kind in ("eager", "fast"):
        trained = make(kind, name, device, precision)
        data = Learnable(device, 32)
        values = []
        for index in range(STEPS):
            values.append(trained.step([data.batch(BATCH)])[0])
            if index == 0:
                statistics[kind] = [b.clone() for b in trained.model.buffers()]
        losses[kind] = torch.stack(values).double().cpu()
        assert trained.step.performed == STEPS
        scores[kind] = accuracy(trained, device)
        trained.reducer.close()
    eager, fast = losses["eager"], losses["fast"]
    assert (fast[:3] - eager[:3]).abs().max() < 0.01 * eager[0]
    means = (fast - eager).reshape(-1, 20).mean(dim=1).abs()
    assert means.max() < 0.1, means.tolist()
    assert means[-1] < 0.05, means.tolist()
    assert eager[-20:].mean() < 0.8 * eager[0], "the data were not learned"
    # The same accuracy after a whole small training.
    assert abs(scores["fast"] - scores["eager"]) < 0.03, scores
    assert scores["eager"] > 0.9, scores
    rough = 2e-2 if precision == "bf16" else 3e-3
    for a, b in zip(statistics["fast"], statistics["eager"], strict=True):
        torch.testing.assert_close(a, b, rtol=rough, atol=rough)


def test_a_graph_gives_the_bits_of_its_launches(device: torch.device) -> None:
    from fourmin.training.fast.plan import FusionPlan

    results = []
    for use_graphs in (False, True):
        # cuDNN's plans with statistics are chosen by time, and may differ from run to run.
        fast = make(
            "fast", "resnet20", device, "fp16", use_graphs=use_graphs,
            plan=FusionPlan(epilogue=False),
        )  # fmt: skip
        data = Learnable(device, 32)
        losses = [fast.step([data.batch(32), data.batch(32)])[0].item() for _ in range(5)]
        results.append((losses, [p.detach().clone() for p in fast.model.parameters()]))
        fast.reducer.close()
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


def test_an_overflow_skips_the_step_on_the_device(device: torch.device) -> None:
    fast = make("fast", "resnet8", device, "fp16", loss_scale=2.0**24)
    before = [p.detach().clone() for p in fast.model.parameters()]
    data = Learnable(device, 16)
    images, labels = data.batch(32)
    fast.step([(images * 100, labels)])
    skipped = [torch.equal(a, b) for a, b in zip(before, fast.model.parameters(), strict=True)]
    performed = fast.step.performed
    if performed == 0:
        assert all(skipped)
    assert performed + fast.precision.skipped_steps == 1
    for _ in range(30):
        fast.step([data.batch(32)])
    assert fast.step.performed + fast.precision.skipped_steps == 31
    assert fast.precision.skipped_steps > 0
    assert fast.precision.loss_scale < 2.0**24
    fast.reducer.close()


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_the_eager_step_updates_on_the_device_as_on_the_host(
    device: torch.device, precision: str
) -> None:
    """Steps performed and skipped, loss scale, weights and momentum, over two micro-batches."""
    host, other = (
        make("eager", "resnet8", device, precision, loss_scale=2.0**22) for _ in range(2)
    )
    step = build_step(
        "eager", other.model, other.optimizer, other.reducer, other.precision, rate, 0.1,
        total_steps=20, growth_interval=50, world_size=1, say=pytest.fail,
    )  # fmt: skip
    start = weights_of(host)
    data = Learnable(device, 16)
    for _ in range(12):
        batches = [data.batch(16), data.batch(16)]
        expected = host.step(batches)[0].item()
        assert step(batches)[0].item() == pytest.approx(expected, rel=2e-3)
    assert step.state_dict() == host.step.state_dict()
    assert step.performed == host.step.performed > 0
    assert other.precision.skipped_steps == host.precision.skipped_steps
    # Of what they have moved by: convolutions do not sum in one order each time, and a last bit
    # of BF16 that differs grows over the steps (0.039 on an H200).
    moved = weights_of(host) - start
    apart = moved - (weights_of(other) - start)
    assert apart.norm() < 0.1 * moved.norm()
    assert moved.norm() > 0
    for one in (host, other):
        one.reducer.close()


def test_images_of_another_size_get_a_graph_of_their_own(device: torch.device) -> None:
    eager, fast = (make(kind, "resnet8", device, "fp16") for kind in ("eager", "fast"))
    small, large = Learnable(device, 16).batch(16), Learnable(device, 24).batch(8)
    for batch in (small, large, small, large):
        expected, loss = eager.step([batch])[0].item(), fast.step([batch])[0].item()
        assert loss == pytest.approx(expected, rel=0.02)
    for one in (eager, fast):
        one.reducer.close()


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_alexnets_losses_are_the_eager_steps(device: torch.device, precision: str) -> None:
    """Dropout's masks too: both draw from torch's generator, in one order."""
    losses = {}
    for kind in ("eager", "fast"):
        trained = make(kind, "alexnet", device, precision)
        data = Learnable(device, 227)
        torch.cuda.manual_seed(7)
        values = [trained.step([data.batch(32)])[0] for _ in range(40)]
        losses[kind] = torch.stack(values).double().cpu()
        assert trained.step.performed + trained.precision.skipped_steps == 40
        trained.reducer.close()
    eager, fast = losses["eager"], losses["fast"]
    assert ((fast - eager).abs()[:3] < 0.02 * eager[0]).all(), losses
    assert fast[-5:].sum() < fast[:5].sum(), losses
    assert abs(fast[-5:].mean() - eager[-5:].mean()) < 0.4, losses


def test_what_a_step_has_come_to_moves_to_a_new_one(device: torch.device) -> None:
    """Weights, statistics, momentum, steps performed and the loss scale, as a restart does it."""
    one, other = (make("fast", "resnet8", device, "fp16", loss_scale=2.0**24) for _ in range(2))
    data = Learnable(device, 16)
    for _ in range(20):
        one.step([data.batch(32)])
    other.step([data.batch(32)])  # captured, and then forgotten
    state = pack(one.model, one.optimizer, one.step, OrderDigest())
    unpack(state, other.model, other.optimizer, other.step)
    assert other.step.performed == one.step.performed
    assert other.precision.loss_scale == one.precision.loss_scale
    assert other.precision.skipped_steps == one.precision.skipped_steps > 0
    for _ in range(5):
        batch = data.batch(32)
        expected = one.step([batch])[0].item()
        assert other.step([batch])[0].item() == pytest.approx(expected, rel=0.02)
    for trained in (one, other):
        trained.reducer.close()
