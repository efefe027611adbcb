"""Evaluation counts: exact, over unique images, whatever the shares and batch sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fourmin.base.errors import FourminError
from fourmin.datasets.manifest import ImageRow, Manifest
from fourmin.recipe.presets import load_preset
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


def validation(shapes: list[tuple[int, int]]) -> Manifest:
    """A manifest with validation images of these widths and heights."""
    rows = [
        ImageRow("val", f"a/{number:02}.png", 9, bytes(32), *shape)
        for number, shape in enumerate(shapes)
    ]
    return Manifest.from_rows([ImageRow("train", "a/1.png", 9, bytes(32), 8, 8), *rows])


def warmed(manifest: Manifest, rank: int, ranks: int, **changes: Any) -> list[tuple[int, ...]]:
    """The shapes (images, height, width) on which the evaluation warms up."""
    seen: list[tuple[int, ...]] = []
    oracle = Oracle()
    oracle.register_forward_hook(
        lambda _, given, __: seen.append((len(given[0]), *given[0].shape[2:]))
    )
    small = {"procs_per_node": ranks, "global_batch_size": 8 * ranks, "image_size": 4}
    job: Any = SimpleNamespace(configuration=replace(load_preset("digits"), **small | changes))
    place: Any = SimpleNamespace(rank=rank, world_size=ranks, device=torch.device("cpu"))
    assemble._warm_up_evaluation(job, place, manifest, oracle, Precision("fp32", "cpu"))
    return sorted(seen)


def test_the_warm_up_takes_every_size_that_the_rank_will_see() -> None:
    """23 images on 2 ranks in batches of 8: 8 and 3 on the first, 8 and 4 on the other."""
    images = validation([(8, 8)] * 23)
    assert warmed(images, 0, 2) == [(3, 4, 4), (8, 4, 4)]
    assert warmed(images, 1, 2) == [(4, 4, 4), (8, 4, 4)]


def test_the_warm_up_takes_every_size_and_batch_of_the_phases() -> None:
    phases = ("1:global_batch_size=12,image_size=8", "3:eval_rectangles=true,image_size=16")
    wide = validation([(40, 20)] * 8 + [(20, 20)] * 8 + [(20, 40)] * 8)
    shapes = warmed(wide, 0, 1, phases=phases, eval_resize=16)
    # In order of their ratios 12 high and square ones come first, of mean ratio 2/3.
    assert shapes == [(8, 4, 4), (12, 8, 8), (12, 16, 24), (12, 24, 16)]


def test_a_training_step_is_warmed_up_for_every_size_and_batch_of_the_phases() -> None:
    """Twice each, before the clock; a compiled or captured step has seen them all then."""
    seen: list[tuple[int, ...]] = []

    def step(micro_batches: Any) -> None:
        images = micro_batches[0].images
        seen.append((len(micro_batches), len(images), *images.shape[2:]))

    phases = (
        "1:global_batch_size=12,image_size=8,eval_resize=16",
        "2:gradient_accumulation_steps=2,global_batch_size=16",
        "3:image_size=4,gradient_accumulation_steps=1,global_batch_size=8",
    )
    config = replace(
        load_preset("digits"), global_batch_size=8, image_size=4, phases=phases, procs_per_node=1
    )
    job: Any = SimpleNamespace(configuration=config)
    place: Any = SimpleNamespace(device=torch.device("cpu"))
    assemble._warm_up(job, place, step)  # type: ignore[arg-type]
    assert sorted(seen) == sorted([(1, 8, 4, 4), (1, 12, 8, 8), (2, 8, 8, 8)] * 2)
