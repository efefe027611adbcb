"""The fast step against the eager one in FP32, without graphs: on any machine with Triton."""

from __future__ import annotations

import pytest
import torch
from fast_cases import Learnable, Trained, make

from fourmin.training.models.init import initialize, weights_digest
from fourmin.training.precision import Precision


def assert_same_state(a: Trained, b: Trained, tolerance: float) -> None:
    other = b.model.state_dict()
    for name, value in a.model.state_dict().items():
        if value.is_floating_point():
            error = (value - other[name]).norm() / value.norm().clamp_min(1e-6)
            assert error < tolerance, f"{name}: {error:.1e}"
        else:
            assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_losses_weights_and_statistics_equal_the_eager_steps(
    device: torch.device, micro_batches: int
) -> None:
    eager = make("eager", "resnet8", device, "fp32")
    fast = make("fast", "resnet8", device, "fp32", use_graphs=False)
    data = Learnable(device, 16)
    for _ in range(2):
        parts = [data.batch(4) for _ in range(micro_batches)]
        expected, _ = eager.step(parts)
        loss, exposed = fast.step(parts)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
        assert exposed.seconds() == 0.0
    assert fast.step.performed == eager.step.performed == 2
    assert_same_state(eager, fast, 1e-4)
    eager.reducer.close()
    fast.reducer.close()


def test_after_reset_a_run_is_as_new(device: torch.device) -> None:
    """As a session does it: steps to warm up, then new weights, and history forgotten."""
    fast = make("fast", "resnet8", device, "fp32", use_graphs=False)
    digest = weights_digest(fast.model)
    data = Learnable(device, 16)
    for _ in range(2):
        fast.step([data.batch(4, noise=0.0)])
    assert weights_digest(fast.model) != digest
    fast.step.reset(Precision("fp32", device))
    initialize(fast.model, 5, "he", False)
    assert weights_digest(fast.model) == digest
    assert fast.step.performed == 0

    fresh = make("fast", "resnet8", device, "fp32", use_graphs=False)
    batches = [data.batch(4) for _ in range(2)]
    for batch in batches:
        assert fast.step([batch])[0].item() == fresh.step([batch])[0].item()
    assert_same_state(fast, fresh, 1e-12)
    for one in (fast, fresh):
        one.reducer.close()
