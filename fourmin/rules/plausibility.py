"""PHY: no result is faster than its chips can be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from fourmin.base.canonical import loads_strict
from fourmin.base.values import mapping
from fourmin.ledger.view import RunView
from fourmin.rules.rule import ERROR, NOTE, RUN, Problem, rule
from fourmin.ruleset import CURRENT, load_ruleset


@cache
def facts(ruleset: str) -> Any:
    """Operations an image takes to train on, and chips' peaks without sparsity, as published."""
    return loads_strict((load_ruleset(ruleset).folder / "plausibility.json").read_bytes())


def peak_of(ruleset: str, model: str) -> float | None:
    """The highest published peak (operations/s) of a chip, None where it is not known.

    Of several names that occur in `model` the longest is meant: `L40S` is no `L40`.
    """
    words = f" {' '.join(re.split(r'[^A-Za-z0-9]+', model))} ".lower()
    found = [chip for chip in facts(ruleset)["chips"] if f" {chip['match'].lower()} " in words]
    return max(found, key=lambda chip: len(chip["match"]))["peak"] if found else None


def _chips(run: RunView) -> list[str]:
    """The models of the accelerators in the log; empty for a run on CPUs."""
    config = run.configuration
    if config is None or config.device != "cuda":
        return []
    accelerators = run.facts.hardware.get("accelerators")
    listed = accelerators if isinstance(accelerators, list) else []
    return [str(mapping(item).get("model")) for item in listed]


def _ruleset(run: RunView) -> str:
    return CURRENT if run.campaign is None else run.campaign.ruleset


@rule("PHY001", "faster-than-peak", ERROR, RUN)
def faster_than_peak(run: RunView) -> Iterator[Problem]:
    """The run does no more operations a second than its chips can.

    What it checks
        Images/s between epoch_start and epoch_stop, times the operations that the model takes to
        train on an image, against the number of workers times the chip's published peak.
    Why it is bad
        What the hardware cannot do did not happen, or happened on more hardware.
    Example
        50,000 images/s of ResNet-50 on one V100: 1.2e15 operations/s, peak 1.3e14.
    How to put it right
        Look at the clock, the number of chips and the sample counts in the log.
    """
    config, rate = run.configuration, run.facts.images_per_second
    if config is None or rate is None:
        return
    operations = facts(_ruleset(run))["operations_per_image"].get(config.model)
    peaks = [peak_of(_ruleset(run), model) for model in _chips(run)]
    if operations is None or not peaks or None in peaks:
        return
    peak = config.workers * max(value for value in peaks if value is not None)
    if rate * operations > peak:
        yield Problem(
            run.log_path,
            f"{rate:.0f} images/s take {rate * operations:.2g} operations/s; "
            f"{config.workers} chips can do {peak:.2g}",
        )


@rule("PHY002", "unknown-chip", NOTE, RUN)
def unknown_chip(run: RunView) -> Iterator[Problem]:
    """The peak of an accelerator is not known here.

    What it checks
        The models of the accelerators in the log against the list in
        `rules/<version>/plausibility.json`.
    Why it is bad
        It is not. But no limit can be held against this run.
    Example
        A chip that is newer than this ruleset.
    How to put it right
        Add the chip with its published peak to a new version of the ruleset.
    """
    for model in _chips(run):
        if peak_of(_ruleset(run), model) is None:
            yield Problem(run.log_path, f"no peak is known for {model[:100]}")
