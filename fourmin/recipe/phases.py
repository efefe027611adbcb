"""What changes from epoch to epoch: image sizes, batches, and the learning rate by points.

A phase is a text "EPOCHS:FIELD=VALUE,FIELD=VALUE": after so many epochs these fields have these
values, until another phase changes them. `Configuration.at` has what holds in an epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from fourmin.base.canonical import loads_strict
from fourmin.base.errors import FourminError, unknown

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration

VARIED = (
    "global_batch_size", "gradient_accumulation_steps", "image_size", "eval_resize",
    "eval_rectangles", "crop_area",
)  # fmt: skip
"""Fields of the configuration that a phase may change."""

MOST_EPOCHS = 1_000_000
"""The schedule of more is not worked out; phases begin after fewer."""

Phase = tuple[int, dict[str, Any]]
"""Epochs that are over when it begins, and the fields that change."""


def in_epoch(config: Configuration, epoch: int) -> Configuration:
    """What holds in an epoch, counted from 1. Raises FourminError for what are no phases."""
    if not config.phases and not config.largest_batch:
        return config
    known = config.stretches()
    return known[max(0, bisect_right(known, epoch, key=itemgetter(0)) - 1)][1]


@lru_cache(maxsize=32)
def stretches(config: Configuration) -> tuple[tuple[int, Configuration], ...]:
    """The first epoch of each phase, and what holds from there on."""
    if not config.phases and not config.largest_batch:
        return ((1, config),)
    own = config.with_overrides({"phases": (), "largest_batch": 0})
    found = {1: own}
    for after, fields in phases_of(config):
        found[after + 1] = own = own.with_overrides(fields)
    return tuple(found.items())


def phases_of(config: Configuration) -> list[Phase]:
    """The phases after the first one, rising: those of `phases`, and the growth of the batch.

    Raises FourminError for what is no phase.
    """
    found = [_parsed(text) for text in config.phases]
    if any(after < 1 for after, _ in found) or any(a >= b for (a, _), (b, _) in pairwise(found)):
        raise FourminError(
            "phases must rise",
            f"they begin after {', '.join(str(after) for after, _ in found)} epochs",
            "the fields of the configuration are those of the first epoch",
        )
    milestones = config.decay_milestones[: growths(config)]
    for count, milestone in enumerate(milestones, start=1):
        batch = config.global_batch_size * _growth(config) ** count
        found.append((int(milestone), {"global_batch_size": batch}))
    return sorted(found, key=lambda phase: phase[0])


def growths(config: Configuration) -> int:
    """At how many milestones the batch grows instead of the learning rate falling: as long as it
    does not exceed `largest_batch` (Smith et al. 2018, arXiv 1711.00489).

    Raises FourminError for a growth that gives no whole batch or does not fall on an epoch.
    """
    if not config.largest_batch or config.learning_rate_decay != "step":
        return 0
    factor, milestones = _growth(config), config.decay_milestones
    whole = all(milestone >= 1 and milestone % 1 == 0 for milestone in milestones)
    if factor < 2 or abs(factor * config.decay_factor - 1) > 1e-9 or not whole:
        raise FourminError(
            "a batch that grows needs whole numbers",
            f"decay_factor={config.decay_factor} must be 1/2, 1/3, ..., and the milestones "
            f"{milestones} whole epochs",
            "--set decay_factor=0.1, or --set largest_batch=0",
        )
    batches = (config.global_batch_size * factor ** (n + 1) for n in range(len(milestones)))
    return sum(batch <= config.largest_batch for batch in batches)


def _growth(config: Configuration) -> int:
    return round(1 / config.decay_factor) if config.decay_factor > 1e-9 else 0


def _parsed(text: str) -> Phase:
    after, _, fields = text.partition(":")
    try:
        pairs = [field.split("=") for field in fields.split(",")]
        changes: dict[str, Any] = {name: loads_strict(value.encode()) for name, value in pairs}
        epochs = int(after)
        if any(
            not isinstance(v, (int, float)) or (v <= 0 and v is not False) for v in changes.values()
        ):
            raise ValueError
    except (TypeError, ValueError):
        raise FourminError(
            f"phase {text!r} makes no sense",
            next_step="a phase is EPOCHS:FIELD=VALUE,FIELD=VALUE, such as 14:image_size=224",
        ) from None
    for name in changes:
        if name not in VARIED:
            raise unknown(f"a phase cannot change {name!r}", name, VARIED)
    return epochs, changes


def check_image_sizes(image_size: int, eval_resize: int) -> None:
    """Raise FourminError for sizes that cannot be."""
    if not 0 < image_size <= eval_resize:
        raise FourminError(
            f"image_size {image_size} and eval_resize {eval_resize} do not go together",
            "the square of image_size is cut from an image whose shorter side is eval_resize",
            "make eval_resize at least image_size",
        )


def rate_at(config: Configuration, epochs: float) -> float:
    """The learning rate after so many epochs: straight lines between `learning_rate_points`.

    Of two points of one place the later holds from there on; outside of them the nearest does.
    Raises FourminError for what are no points.
    """
    points = parse_points(config.learning_rate_points)
    index = bisect_right([place for place, _ in points], epochs)
    if index in (0, len(points)):
        return points[max(0, index - 1)][1]
    (begin, first), (end, last) = points[index - 1 : index + 1]
    return first + (last - first) * (epochs - begin) / (end - begin)


def parse_points(texts: tuple[str, ...]) -> list[tuple[float, float]]:
    """(epochs, learning rate) of each point. Raises FourminError unless there are some, rising."""
    try:
        points = [(float(a), float(b)) for a, _, b in (text.partition(":") for text in texts)]
    except ValueError:
        points = []
    if not points or any(a > b for (a, _), (b, _) in pairwise(points)):
        raise FourminError(
            f"learning_rate_points {list(texts)} make no schedule",
            "a point is EPOCHS:RATE, and their epochs rise",
            '--set learning_rate_points=["0:0.1","5:0.4"], or another learning_rate_decay',
        )
    return points
