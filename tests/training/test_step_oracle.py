"""Real runs, with two workers and with four, against an independent float64 computation."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from finished_runs import FinishedRun
from processes import FOUR_EPOCHS_OVER_A_RING, HYBRID
from reference import BATCH, STEPS_PER_EPOCH, first_losses, order

STEPS = 8


@pytest.fixture
def over_a_ring(finished_run: Callable[..., FinishedRun]) -> dict[str, Any]:
    """The result of a run of two workers, in four epochs."""
    return finished_run(*FOUR_EPOCHS_OVER_A_RING).run_results()[0]


def assert_losses(result: dict[str, Any], workers: int) -> None:
    expected = first_losses(result["seed"], STEPS, workers)
    assert len(expected) == STEPS
    assert result["first_losses"] == pytest.approx(expected, rel=1e-4)
    # The oracle must be able to tell: the steps really change the loss.
    assert max(abs(a - b) for a, b in pairwise(expected)) > 1e-3


def test_losses_of_the_first_steps_equal_an_independent_float64_computation(
    over_a_ring: dict[str, Any],
) -> None:
    assert_losses(over_a_ring, workers=2)


def test_so_do_those_of_four_workers_in_groups(finished_run: Callable[..., FinishedRun]) -> None:
    """Hybrid: a ring and two levels, each for its buckets."""
    (result,) = finished_run(*HYBRID).run_results()
    assert_losses(result, workers=4)
    assert len(result["communication"]["bucket_bytes"]) > 1
    assert set(result["communication"]["algorithms"]) == {"ring", "hierarchical"}


def test_the_data_order_digest_is_that_of_the_seed(over_a_ring: dict[str, Any]) -> None:
    epochs = [order(over_a_ring["seed"], epoch)[: STEPS_PER_EPOCH * BATCH] for epoch in range(1, 5)]
    consumed = np.concatenate(epochs).astype("<i8")
    assert over_a_ring["data_order_digest"] == hashlib.sha256(consumed.tobytes()).hexdigest()
    correct = over_a_ring["quality"] * 360
    assert math.isclose(correct, round(correct), abs_tol=1e-9)
