"""Batch statistics over groups of ranks: four gloo processes against one with the whole batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from fourmin.base.errors import FourminError
from fourmin.training.models import build_model
from fourmin.training.models.batchnorm import (
    SpanBatchNorm2d,
    apply_bn_span,
    average_bn_statistics,
)

WORLD, SPAN = 4, 2
COUNTS = (3, 5, 2, 4)  # images of each rank: uneven on purpose


def launch(directory, world, span, device):
    """Inputs and what each rank made of them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.BatchNorm2d(4, 1e-5, 0.2)))
    with torch.no_grad():
        model[1][0].weight.uniform_(0.5, 2.0)
        model[1][0].bias.uniform_(-1.0, 1.0)
    inputs = {
        "state": model.state_dict(),
        # Ranks differ in mean and spread, so that sharing matters; a large mean tempts the
        # variance to cancel.
        "x": [10.0 + torch.randn(n, 3, 6, 5) * (r + 1) + r for r, n in enumerate(COUNTS)],
        "weights": [torch.randn(n, 4, 6, 5) for n in COUNTS],
    }
    torch.save(inputs, directory / "inputs.pt")
    script = Path(__file__).with_name("bn_span_worker.py")
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(world), str(span), str(directory), device],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * world, "\n".join(errors)
    ranks = [
        torch.load(directory / f"rank-{rank}.pt", weights_only=True, map_location="cpu")
        for rank in range(world)
    ]
    return inputs, ranks


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Four ranks on the CPU, in groups of two."""
    return launch(tmp_path_factory.mktemp("bn-span"), WORLD, SPAN, "cpu")


def reference(inputs, members):
    """The same two passes in one process over the concatenated batch, in float64."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.BatchNorm2d(4, 1e-5, 0.2)))
    model.load_state_dict(inputs["state"])
    model.double()
    x = torch.cat([inputs["x"][r] for r in members]).double().requires_grad_()
    for _ in range(2):
        model.zero_grad()
        x.grad = None
        y = model(x)
        (y * torch.cat([inputs["weights"][r] for r in members]).double()).sum().backward()
    return model, x, y


GROUPS = [(0, 1), (2, 3)]


def close(actual, expected, tolerance):
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("members", GROUPS)
def test_outputs_and_input_gradients_equal_one_process(outcome, members):
    inputs, ranks = outcome
    _, x, y = reference(inputs, members)
    sizes = [COUNTS[r] for r in members]
    for rank, y_part, dx_part in zip(
        members, y.detach().split(sizes), x.grad.split(sizes), strict=True
    ):
        close(ranks[rank]["y"], y_part, 3e-5)
        close(ranks[rank]["dx"], dx_part, 3e-5)


@pytest.mark.parametrize("members", GROUPS)
def test_parameter_gradients_add_up_to_one_process(outcome, members):
    inputs, ranks = outcome
    model, _, _ = reference(inputs, members)
    for index, parameter in enumerate(model.parameters()):
        total = sum(ranks[rank]["grads"][index].double() for rank in members)
        # The convolution's bias has gradient 0 but for rounding, at inputs of about 10.
        close(total, parameter.grad, 1e-3 if index < 2 else 1e-4)


@pytest.mark.parametrize("members", GROUPS)
def test_running_statistics_equal_one_process(outcome, members):
    inputs, ranks = outcome
    model, _, _ = reference(inputs, members)
    expected = model[1][0]
    for rank in members:
        state = ranks[rank]["state"]
        close(state["1.0.running_mean"], expected.running_mean, 1e-5)
        close(state["1.0.running_var"], expected.running_var, 1e-5)
        assert state["1.0.num_batches_tracked"] == 2


def test_groups_do_not_mix(outcome):
    _, ranks = outcome
    means = [rank["state"]["1.0.running_mean"] for rank in ranks]
    assert torch.equal(means[0], means[1])
    assert torch.equal(means[2], means[3])
    assert not torch.allclose(means[0], means[2])


def test_a_layer_of_its_own_would_fail_these_tests(outcome):
    inputs, ranks = outcome
    _, _, alone = reference(inputs, (0,))
    assert (ranks[0]["y"] - alone.detach()).abs().max() > 0.05


def test_evaluation_uses_running_statistics(outcome):
    inputs, ranks = outcome
    model, _, _ = reference(inputs, (0, 1))
    close(ranks[0]["y_eval"], model.eval()(inputs["x"][0].double()).detach(), 3e-4)


def test_names_parameters_and_types_survive(outcome):
    inputs, ranks = outcome
    for rank in ranks:
        assert rank["same_parameters"]
        assert rank["keys"] == list(inputs["state"])
        assert rank["y_bf16"].dtype == torch.bfloat16
        close(rank["y_bf16"], rank["y"].double(), 0.5)


def test_average_bn_statistics(outcome):
    _, ranks = outcome
    for name in ("1.0.running_mean", "1.0.running_var"):
        expected = sum(rank["state"][name].double() for rank in ranks) / WORLD
        for rank in ranks:
            close(rank["averaged"][name], expected, 1e-6)
            assert torch.equal(rank["averaged"][name], ranks[0]["averaged"][name])
    for rank in ranks:  # nothing else moved
        for name in ("0.weight", "1.0.weight", "1.0.num_batches_tracked"):
            assert torch.equal(rank["averaged"][name], rank["state"][name])


@pytest.fixture
def alone(tmp_path):
    """A process group of one rank."""
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    yield
    dist.destroy_process_group()


def test_gradients_by_finite_differences(alone):
    layer = SpanBatchNorm2d(2, 1e-3, 0.1)
    x = torch.randn(3, 2, 2, 2, requires_grad=True)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.5, 2.0]))
    weights = torch.randn(3, 2, 2, 2)
    (layer(x) * weights).sum().backward()
    step = 1e-2
    for index in range(0, x.numel(), 5):
        ends = []
        for sign in (1, -1):
            moved = x.detach().clone()
            moved.view(-1)[index] += sign * step
            ends.append((layer(moved) * weights).sum().item())
        slope = (ends[0] - ends[1]) / (2 * step)
        assert x.grad.view(-1)[index].item() == pytest.approx(slope, abs=2e-2)


def test_one_value_per_channel_is_refused(alone):
    with pytest.raises(ValueError, match="more than one value"):
        SpanBatchNorm2d(2)(torch.randn(1, 2, 1, 1))


@pytest.mark.parametrize(("span", "world"), [(3, 4), (8, 4), (0, 4), (-2, 4)])
def test_span_must_divide_the_world(span, world):
    with pytest.raises(FourminError, match="1, 2, 4"):
        apply_bn_span(nn.Sequential(nn.BatchNorm2d(2)), span, world)


def test_span_one_changes_nothing():
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    apply_bn_span(model, 1, 4)  # also needs no process group
    assert not any(isinstance(m, SpanBatchNorm2d) for m in model.modules())


def test_average_without_distribution_changes_nothing():
    model = nn.Sequential(nn.BatchNorm2d(2))
    model[0].running_mean.fill_(3.0)
    average_bn_statistics(model)
    assert model[0].running_mean.tolist() == [3.0, 3.0]


@pytest.mark.gpu
def test_two_gpus_equal_one_process(tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("fewer than two CUDA GPUs")
    inputs, ranks = launch(tmp_path, 2, 2, "cuda")
    model, x, y = reference(inputs, (0, 1))
    sizes = COUNTS[:2]
    for rank, y_part, dx_part in zip(
        ranks, y.detach().split(sizes), x.grad.split(sizes), strict=True
    ):
        assert rank["same_parameters"]
        assert rank["keys"] == list(inputs["state"])
        close(rank["y"], y_part, 1e-4)
        close(rank["dx"], dx_part, 1e-4)
        close(rank["state"]["1.0.running_var"], model[1][0].running_var, 1e-4)
        assert torch.equal(
            rank["averaged"]["1.0.running_mean"], ranks[0]["averaged"]["1.0.running_mean"]
        )
