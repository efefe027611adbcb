"""Steps and places of epochs, recounted for rules: phases may have batches of their own."""

from __future__ import annotations

from itertools import pairwise

from fourmin.recipe.configuration import Configuration


def steps_through(config: Configuration, train_samples: int, epochs: int) -> int:
    """Steps of the first `epochs` epochs."""
    begun = [one for one in config.stretches() if one[0] <= epochs]
    return sum(
        (end - first) * own.steps_per_epoch(train_samples)
        for (first, own), (end, _) in pairwise([*begun, (epochs + 1, config)])
    )


def epochs_before(config: Configuration, train_samples: int, step: int) -> float:
    """The epochs, and the part of one, that are over when `step`, from 0, begins."""
    before = 0
    *_, (first, own) = stretches = config.stretches()
    for (begin, holds), (end, _) in pairwise(stretches):
        through = before + (end - begin) * holds.steps_per_epoch(train_samples)
        if step < through:
            first, own = begin, holds
            break
        before = through
    return first - 1 + (step - before) / own.steps_per_epoch(train_samples)
