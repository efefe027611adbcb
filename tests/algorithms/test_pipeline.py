"""A pipeline over processes against the unsplit model over the same micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pipeline_cases import BATCHES, SIZE, batch, model_of, run
from torch.nn import functional


@pytest.mark.parametrize(
    ("model", "ranks", "micro_batches", "schedule"),
    [
        ("resnet8", 2, 4, "gpipe"),
        ("resnet8", 2, 3, "1f1b"),
        ("resnet20", 3, 4, "1f1b"),
        ("resnet8", 1, 2, "1f1b"),
    ],
)
def test_it_has_the_gradients_of_the_unsplit_model(
    tmp_path: Path, model: str, ranks: int, micro_batches: int, schedule: str
) -> None:
    found = run(tmp_path, ranks, model=model, micro_batches=micro_batches, schedule=schedule)
    whole = model_of(model)
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for number in range(BATCHES):
        images, labels = batch(number)
        optimizer.zero_grad()
        mean = 0.0
        for part, expected in zip(
            images.chunk(micro_batches), labels.chunk(micro_batches), strict=True
        ):
            loss = functional.cross_entropy(whole(part), expected, label_smoothing=0.1)
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
    tracked = [v for n, v in found[0]["state"].items() if n.endswith("num_batches_tracked")]
    assert set(map(int, tracked)) == {BATCHES * micro_batches}
    assert SIZE % micro_batches == 0


def test_more_ranks_than_stages_are_refused(tmp_path: Path) -> None:
    found = run(tmp_path, 4, model="resnet8", micro_batches=4, schedule="1f1b")
    what = "a model of 3 stages cannot be shared out among 4 workers"
    assert [rank["refused"] for rank in found] == [what] * 4
