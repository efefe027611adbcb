"""A pipeline over processes against the unsplit model over the same micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pipeline_cases import BATCHES, SIZE, batch, model_of, momentum_sgd, run
from torch.nn import functional

from fourmin.training.precision import Precision


@pytest.mark.parametrize(
    ("model", "ranks", "micro_batches", "precision"),
    [
        ("resnet8", 2, 4, "fp32"),
        ("resnet8", 2, 3, "fp32"),
        ("resnet20", 3, 4, "bf16"),
        ("resnet8", 1, 2, "fp32"),
    ],
)
def test_it_has_the_gradients_of_the_unsplit_model(
    tmp_path: Path, model: str, ranks: int, micro_batches: int, precision: str
) -> None:
    found = run(tmp_path, ranks, model=model, micro_batches=micro_batches, precision=precision)
    whole = model_of(model)
    optimizer = momentum_sgd(whole)
    autocast = Precision(precision, "cpu").autocast
    for number in range(BATCHES):
        images, labels = batch(number)
        optimizer.zero_grad()
        mean = 0.0
        for part, expected in zip(
            images.chunk(micro_batches), labels.chunk(micro_batches), strict=True
        ):
            with autocast():
                logits = whole(part)
            loss = functional.cross_entropy(logits, expected, label_smoothing=0.1)
            (loss / micro_batches).backward()
            mean += float(loss.detach()) / micro_batches
        gradients = {name: p.grad for name, p in whole.named_parameters()}
        split = [rank["gradients"][number] for rank in found]
        assert sum(len(own) for own in split) == len(gradients)  # each on one rank only
        for own in split:
            assert own
            for name, gradient in own.items():
                exact = gradients[name]
                # The sum is divided after it, here each term before: exact by powers of two.
                within = 0.0 if micro_batches in (2, 4) else 1e-5 * float(exact.norm())
                assert float((gradient - exact).norm()) <= within, name
        assert [rank["losses"][number] for rank in found] == [pytest.approx(mean, rel=1e-6)] * ranks
        optimizer.step()
    for rank in found:
        assert rank["state"].keys() == whole.state_dict().keys()
        for name, value in whole.state_dict().items():
            torch.testing.assert_close(rank["state"][name], value, rtol=1e-5, atol=1e-6)
        for value, parameter in zip(rank["momenta"], whole.parameters(), strict=True):
            expected = optimizer.state[parameter]["momentum_buffer"]
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    tracked = [v for n, v in found[0]["state"].items() if n.endswith("num_batches_tracked")]
    assert set(map(int, tracked)) == {BATCHES * micro_batches}
    # Activations of 16 x 16 x 16, and of 32 x 8 x 8, forth and their gradients back.
    numbers = {1: (), 2: (16 * 256,), 3: (16 * 256, 32 * 64)}[ranks]
    each = SIZE * 2 * (2 if precision == "bf16" else 4)
    assert [rank["bytes"] for rank in found] == [tuple(each * n for n in numbers)] * ranks
    assert SIZE % micro_batches == 0


def test_more_ranks_than_stages_are_refused(tmp_path: Path) -> None:
    found = run(tmp_path, 4, model="resnet8", micro_batches=4, precision="fp32")
    what = "a model of 3 stages cannot be shared out among 4 workers"
    assert [rank["refused"] for rank in found] == [what] * 4
