"""Sandblaster with real processes, some of which are slow or die."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lbfgs_oracle import torch_lbfgs
from sandblaster_cases import PORTION, PORTIONS, SAMPLES, Asked, loss_of, run
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from fourmin.base.errors import NOT_CONVERGED, FourminError
from fourmin.training.algorithms.sandblaster import PortionWorker, Sandblaster
from fourmin.training.algorithms.shards import Coordinator, Shard
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.native import NativeAllReduce
from fourmin.training.data.loader import Batch
from fourmin.training.heartbeat import Heartbeat
from fourmin.training.precision import Precision
from fourmin.training.step import EagerStep, HostUpdate

FIXED = {"history": 10, "line_search": False}
START = torch.zeros(640, dtype=torch.float64)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(Asked(tmp_path_factory.mktemp("whole") / "run", 21, FIXED))


def test_it_goes_where_torchs_lbfgs_goes(undisturbed: dict[str, Any]) -> None:
    *_, expected = torch_lbfgs(loss_of, START, 20, lr=1.0, history_size=10)
    assert (undisturbed["x"] - expected).abs().max() < 1e-6
    assert undisturbed["codes"] == [0, 0, 0]
    assert undisturbed["lost"] == []
    assert undisturbed["moved"] == 21
    assert undisturbed["given"] >= 21 * PORTIONS
    starts = range(0, SAMPLES, PORTION)
    assert undisturbed["rest"] == [[one, min(one + PORTION, SAMPLES)] for one in starts]
    # In float64, each portion's gradient, and the weights once for each worker that had any.
    numbers = undisturbed["bytes"] / (8 * 640)
    assert 21 * (PORTIONS + 1) <= numbers <= 21 * (PORTIONS + 3)


def test_a_worker_that_is_killed_and_one_that_is_slow_change_no_bit(
    undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    found = run(Asked(tmp_path / "run", 21, FIXED, dies={2: 9}, sleeps={1: 0.1}))
    assert found["codes"] == [0, 0, -signal.SIGKILL]
    assert found["lost"] == [2]
    # What the dead one had was given again, and in each evaluation what the slow one had.
    assert found["given"] > 21 * PORTIONS + 10
    assert torch.equal(found["x"], undisturbed["x"])
    assert found["losses"] == undisturbed["losses"]


def test_with_line_search_it_needs_at_most_half_as_much_again_as_torch(tmp_path: Path) -> None:
    found = run(Asked(tmp_path / "run", 90, {"history": 10}, dies={0: 30, 2: 50}))
    *seen, x = torch_lbfgs(loss_of, START, 300, history_size=10, line_search_fn="strong_wolfe")
    losses = [float(loss_of(one)) for one in seen]
    assert sorted(found["lost"]) == [0, 2]
    minimum = float(loss_of(x))
    gradient = torch.func.grad(loss_of)(x)
    assert gradient.abs().max() < 1e-7  # the penalty makes it the only minimum
    theirs = next(n for n, loss in enumerate(losses, 1) if loss - minimum < 1e-7)
    ours = next(n for n, loss in enumerate(found["losses"], 1) if loss - minimum < 1e-7)
    assert ours <= 1.5 * theirs
    torch.testing.assert_close(found["x"], x, rtol=0, atol=1e-3)


def test_without_a_worker_it_says_what_the_last_one_died_of(tmp_path: Path) -> None:
    found = run(Asked(tmp_path / "run", 5, {"history": 3}, dies={0: 4}, raises=(1, 2)))
    assert sorted(found["lost"]) == [0, 1, 2]
    what, why = found["error"]
    assert what == "no worker is left that could do the portions"
    assert why.startswith(f"worker {found['lost'][-1]}: ")
    assert found["codes"] == [-signal.SIGKILL, 0, 0]


def test_a_shard_takes_gradients_of_its_evaluation_only_in_any_order() -> None:
    shard = Shard()
    shard.put("x", torch.zeros(2))
    shard.begin(3, "x")
    shard.add(3, 1, torch.tensor([1.0, 1.0]))
    shard.add(2, 0, torch.tensor([7.0, 7.0]))
    shard.add(3, 0, torch.tensor([0.25, 2.0], dtype=torch.float64))
    shard.add(3, 0, torch.tensor([9.0, 9.0]))
    shard.settle("g")
    assert shard.read("g").tolist() == [1.25, 3.0]
    assert shard.at == "x"


def test_a_shard_combines_a_vector_with_itself() -> None:
    shard = Shard()
    shard.put("x", torch.tensor([1.0, -2.0]))
    shard.combine("y", {"x": 2.0})
    shard.combine("y", {"y": 0.5, "x": -3.0})
    assert shard.dots(["x", "y"], ["y"]) == [[-10.0], [20.0]]
    assert shard.absolute_sum("y") == 6.0


def test_a_term_is_a_batchs_share_of_the_mean_loss_with_the_penalty() -> None:
    """With the frame's worker around it, but without processes: against autograd by hand."""
    images, labels = torch.randn(6, 3, 8, 8), torch.arange(6) % 3
    worker = object.__new__(PortionWorker)
    layer = nn.Conv2d(3, 4, 3, bias=False)
    norm = nn.BatchNorm2d(4, momentum=1.0)
    model = nn.Sequential(layer, norm, nn.Flatten(), nn.Linear(144, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    reducer = GradientReducer(model.named_parameters(), NativeAllReduce(1), 1, 0)
    precision = Precision("fp32", "cpu")
    update = HostUpdate(optimizer, reducer.flat_buffers, precision, lambda _: 0.0)
    asked: list[tuple[int, list[int]]] = []

    class Loaded:
        def batches_of(self, epoch: int, steps: list[int]) -> list[Batch]:
            asked.append((epoch, steps))
            return [Batch(images, labels, torch.arange(6) + 50)]

    worker.__dict__.update(
        _model=model,
        _decays=[(one, 0.3 if one is layer.weight else 0.0) for one in model.parameters()],
        _portions=5,
        _job=SimpleNamespace(seed=11),
        _loader=Loaded(),
        _step=EagerStep(model, update, reducer, precision, 0.1),
    )
    weights = torch.randn(sum(one.numel() for one in model.parameters()), dtype=torch.float64)
    term = worker._term(weights, 7)
    reducer.close()

    x = weights.float().requires_grad_()
    names = [name for name, _ in model.named_parameters()]
    parts = x.split([one.numel() for one in model.parameters()])
    shaped = [part.view(one.shape) for part, one in zip(parts, model.parameters(), strict=True)]
    logits = functional_call(model, dict(zip(names, shaped, strict=True)), (images,))
    loss = functional.cross_entropy(logits, labels, label_smoothing=0.1)
    loss = (loss + 0.15 * shaped[0].square().sum()) / 5
    assert term.loss == pytest.approx(float(loss.detach()), rel=1e-6)
    torch.testing.assert_close(term.gradient, torch.autograd.grad(loss, x)[0])
    seen = functional.conv2d(images, shaped[0].detach())
    statistics = torch.cat([seen.mean((0, 2, 3)), seen.var((0, 2, 3))])
    torch.testing.assert_close(term.rest[0], statistics)
    assert term.rest[1].tolist() == list(range(50, 56))
    assert asked == [(1, [7])]


def test_a_minimum_before_the_target_ends_the_run() -> None:
    host = object.__new__(Sandblaster)
    host.__dict__.update(
        _coordinator=Coordinator((), ()),
        _run=SimpleNamespace(heartbeat=Heartbeat(None, 1.0)),
        _evaluations=iter(()),
    )
    with pytest.raises(FourminError, match="no step leads to a lower loss") as caught:
        host._evaluate(9, 3)
    assert caught.value.exit_code == NOT_CONVERGED
