"""Compute times that a user measured or states, in place of a profile's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.estimate.profile import Compute, Profile
from fourmin.recipe.configuration import Configuration

STEP_SCHEMA = "fourmin-bench-step-1"
"""What the JSON of `fourmin bench step` says it is."""
_MEASURE = "`fourmin bench step --json` writes one"


def with_stated_rate(
    profile: Profile, configuration: Configuration, images_per_second: float
) -> Profile:
    """`profile` with the images/s that one worker does alone, at the run's images a pass."""
    batch = configuration.local_batch_size
    stated = Compute(
        configuration.model, configuration.precision, batch, images_per_second, "stated by the user"
    )
    return _with_compute(profile, [stated])


def with_step_report(profile: Profile, configuration: Configuration, path: Path) -> Profile:
    """`profile` with the times that `fourmin bench step --json` measured for the run's step.

    Raises FourminError for another file, model, precision or step.
    """
    try:
        report: Any = json.loads(path.read_text(encoding="utf-8"))
        if report["schema"] != STEP_SCHEMA:
            raise ValueError(f"its schema is {report['schema']!r}")
        found = {name: report[name] for name in ("model", "precision")}
        measured = [
            Compute(
                configuration.model,
                configuration.precision,
                int(row["batch_size"]),
                float(row["images_per_second"]),
                f"measured: {path.name}, {report['hardware']}",
            )
            for row in report["results"]
            if row["peer"] == configuration.step and row["images_per_second"]
        ]
    except OSError as error:
        raise FourminError(f"cannot read {path}", error.strerror or str(error)) from None
    except (KeyError, TypeError, ValueError) as error:
        raise FourminError(f"{path} is no report of a step", str(error), _MEASURE) from None
    wanted = {"model": configuration.model, "precision": configuration.precision}
    if found != wanted or not measured:
        raise FourminError(
            f"{path} does not have the {configuration.step} step of this run",
            f"it has {found['model']} in {found['precision']}; the run is {configuration.model} in "
            f"{configuration.precision}",
            _MEASURE,
        )
    return _with_compute(profile, measured)


def _with_compute(profile: Profile, stated: Sequence[Compute]) -> Profile:
    return replace(profile, compute=tuple(stated))
