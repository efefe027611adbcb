"""Evaluation counts: exact, over unique images, whatever the shares and batch sizes."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fourmin.base.errors import FourminError
from fourmin.training import assemble
from fourmin.training.evaluate import evaluate
from fourmin.training.precision import Precision


@dataclass
class Batch:
    images: torch.Tensor
    labels: torch.Tensor


class Oracle(nn.Module):
    """Answers with the class that the first pixel names."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: list[bool] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.modes.append(self.training)
        return nn.functional.one_hot(images[:, 0, 0, 0].long(), 10).float()


def batches(answers: list[int], labels: list[int], size: int) -> list[Batch]:
    images = torch.tensor(answers, dtype=torch.float32).reshape(-1, 1, 1, 1).expand(-1, 3, 2, 2)
    truth = torch.tensor(labels)
    return [Batch(images[i : i + size], truth[i : i + size]) for i in range(0, len(answers), size)]


def test_every_image_counts_once_with_a_smaller_last_batch() -> None:
    labels = [i % 10 for i in range(23)]
    answers = [(label + (i < 5)) % 10 for i, label in enumerate(labels)]
    assert evaluate(Oracle(), batches(answers, labels, 8), Precision("fp32", "cpu"), 23) == (18, 23)


def test_a_padded_set_is_refused_and_never_divides_the_accuracy() -> None:
    labels = [i % 10 for i in range(24)]
    with pytest.raises(FourminError, match="24 images instead of 23"):
        evaluate(Oracle(), batches(labels, labels, 8), Precision("fp32", "cpu"), 23)


def test_a_partial_set_is_refused() -> None:
    with pytest.raises(FourminError, match="3 images instead of 4"):
        evaluate(Oracle(), batches([1, 2, 3], [1, 2, 3], 2), Precision("fp32", "cpu"), 4)


def test_batch_statistics_are_not_touched_and_training_goes_on_afterwards() -> None:
    model = Oracle()
    evaluate(model, batches([1, 2], [1, 2], 1), Precision("fp32", "cpu"), 2)
    assert model.modes == [False, False]
    assert model.training


def test_the_warm_up_takes_every_size_that_the_rank_will_see() -> None:
    """23 images on 2 ranks in batches of 8: 8 and 3 on the first, 8 and 4 on the other."""
    sizes: list[list[int]] = []
    for rank in range(2):
        seen: list[int] = []
        oracle = Oracle()
        oracle.register_forward_hook(lambda _, given, __, seen=seen: seen.append(len(given[0])))
        job: Any = SimpleNamespace(
            dataset={"eval_samples": 23},
            configuration=SimpleNamespace(local_batch_size=8, image_size=4),
        )
        place: Any = SimpleNamespace(rank=rank, world_size=2, device=torch.device("cpu"))
        assemble._warm_up_evaluation(job, place, oracle, Precision("fp32", "cpu"))
        sizes.append(sorted(seen))
    assert sizes == [[3, 8], [4, 8]]
