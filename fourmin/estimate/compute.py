"""How long one worker's forward and backward pass takes at a batch, from what was measured.

With measurements at several batches a straight line joins the two that enclose the batch, and the
outermost two beyond them. With one, part of it is fixed: launching some hundred kernels that end
sooner than they start costs the same at any batch. That part is one of the two fitted numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fourmin.base.errors import FourminError, list_names
from fourmin.estimate.models import load_shape
from fourmin.estimate.profile import Compute, Profile

RECOMPUTE = "recompute"
"""The eager step that runs residual blocks again, as a step that was measured."""
REFERENCE_MODEL = "resnet50"
"""The model whose measurements stand in, by operations, for one that has none."""


@dataclass(frozen=True)
class PassTime:
    """Seconds of one forward and backward pass, and what they rest on."""

    seconds: float
    source: str
    derived: bool
    """Whether they were measured for another model, and scaled by operations."""


def measurements(profile: Profile, model: str, precision: str, step: str) -> list[Compute]:
    """What a profile says of a model, in ascending batch; those for `step` before the others."""
    fitting = [one for one in profile.compute if (one.model, one.precision) == (model, precision)]
    chosen = [one for one in fitting if one.step == step] or [o for o in fitting if not o.step]
    return sorted(chosen, key=lambda one: one.batch)


def pass_time(
    profile: Profile,
    *,
    model: str,
    precision: str,
    step: str,
    image_size: int,
    batch: int,
    fixed_seconds: float,
) -> PassTime:
    """The pass of `batch` images of `image_size` pixels.

    Raises FourminError where the profile says nothing of the precision, or the step.
    """
    known = measurements(profile, model, precision, step)
    if known:
        shape = load_shape(model)
        area = (image_size / (known[0].image_size or shape.image_size)) ** 2
        sources = "; ".join(dict.fromkeys(one.source for one in known))
        # A pass over images of half the area takes as long as one over half of them.
        return PassTime(_seconds(known, batch * area, fixed_seconds), sources, False)
    stand_ins = measurements(profile, REFERENCE_MODEL, precision, step)
    if not stand_ins:
        raise FourminError(
            f"system profile {profile.name} has no time for {model} in {precision}, step {step}",
            "it knows " + list_names(sorted({_describe(one) for one in profile.compute})),
            "state it with --images-per-second, or measure it with `fourmin bench step --json` "
            "and give the file by --step-report",
        )
    reference = load_shape(REFERENCE_MODEL)
    factor = load_shape(model).operations(image_size) / reference.operations(reference.image_size)
    # The largest batch has most arithmetic in it; launching kernels costs every model the same.
    largest = stand_ins[-1]
    fixed = min(fixed_seconds, largest.seconds)
    seconds = fixed + (largest.seconds - fixed) * factor * batch / largest.batch
    source = f"{REFERENCE_MODEL} times {factor:.3g} by operations; {largest.source}"
    return PassTime(seconds, source, True)


def _describe(one: Compute) -> str:
    step = f" ({one.step} step)" if one.step else ""
    return f"{one.model} in {one.precision}{step}"


def _seconds(known: Sequence[Compute], batch: float, fixed_seconds: float) -> float:
    if len(known) == 1:
        only = known[0]
        # A measured pass cannot be shorter than the part of it that does not depend on its size.
        fixed = min(fixed_seconds, only.seconds)
        return fixed + (only.seconds - fixed) * batch / only.batch
    above = next((i for i, one in enumerate(known) if one.batch >= batch), len(known) - 1)
    low, high = known[max(1, above) - 1], known[max(1, above)]
    slope = (high.seconds - low.seconds) / (high.batch - low.batch)
    return max(0.0, low.seconds + slope * (batch - low.batch))
