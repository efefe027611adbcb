"""Steps and places of epochs, recounted for rules: phases may have batches of their own."""

from __future__ import annotations

from itertools import pairwise

from fourmin.recipe.configuration import Configuration


def steps_through(config: Configuration, train_samples: int, epochs: int) -> int:
    """Steps of the first `epochs` epochs."""
    begun = [(first, own) for first, own in config.stretches() if first <= epochs]
    lengths = (end - begin for begin, end in pairwise([*(f for f, _ in begun), epochs + 1]))
    return sum(
        count * own.steps_per_epoch(train_samples)
        for (_, own), count in zip(begun, lengths, strict=True)
    )


def epochs_before(config: Configuration, train_samples: int, step: int) -> float:
    """The epochs, and the part of one, that are over when `step`, from 0, begins."""
    for first, own in reversed(config.stretches()):
        before = steps_through(config, train_samples, first - 1)
        if before <= step:
            return first - 1 + (step - before) / own.steps_per_epoch(train_samples)
    raise ValueError(f"step {step} is negative")
