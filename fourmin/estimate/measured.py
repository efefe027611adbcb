"""What a user measured or states of compute, reading and decoding, in place of a profile's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fourmin.base.canonical import loads_strict
from fourmin.base.errors import FourminError
from fourmin.base.files import read_given
from fourmin.base.mishaps import told
from fourmin.estimate.compute import RECOMPUTE
from fourmin.estimate.profile import Compute, Profile
from fourmin.recipe.configuration import Configuration

STEP_SCHEMA = "fourmin-bench-step-1"
"""What the JSON of `fourmin bench step` says it is."""
DATA_SCHEMA = "fourmin-bench-data-1"
_MEASURE = "`fourmin bench {} --json` writes one"


def with_stated_rate(
    profile: Profile, configuration: Configuration, images_per_second: float
) -> Profile:
    """`profile` with the images/s that one worker does alone, at the run's images a pass."""
    batch = configuration.local_batch_size
    stated = Compute(
        configuration.model, configuration.precision, batch, images_per_second,
        "stated by the user", image_size=configuration.image_size,
    )  # fmt: skip
    return replace(profile, compute=(stated,))


def with_step_report(profile: Profile, configuration: Configuration, path: Path) -> Profile:
    """`profile` with the times that `fourmin bench step --json` measured for the run's step.

    Raises FourminError for another file, model, precision or step.
    """
    peer = RECOMPUTE if configuration.recompute else configuration.step
    with _report(path, STEP_SCHEMA, "step") as report:
        found = {name: report[name] for name in ("model", "precision")}
        timed = {str(row["peer"]) for row in report["results"] if row["images_per_second"]}
        measured = [
            Compute(
                configuration.model,
                configuration.precision,
                int(_measured(row["batch_size"], 1)),
                _measured(row["images_per_second"]),
                f"measured: {path.name}, {report['hardware']}",
                step=RECOMPUTE if configuration.recompute else "",
                image_size=int(_measured(report["image_size"], 1)),
            )
            for row in report["results"]
            if row["peer"] == peer and row["images_per_second"]
        ]
    wanted = {"model": configuration.model, "precision": configuration.precision}
    if found != wanted or not measured:
        other = sorted(timed & {"eager", "fast"}) if found == wanted else []
        raise FourminError(
            f"{path} does not have the {peer} step of this run",
            f"it has {found['model']} in {found['precision']}, {', '.join(sorted(timed))}; the run "
            f"is {configuration.model} in {configuration.precision}",
            "".join(f"--set step={step}; or " for step in other) + _MEASURE.format("step"),
        )
    return replace(profile, compute=tuple(measured))


def with_data_report(profile: Profile, configuration: Configuration, path: Path) -> Profile:
    """`profile` with what `fourmin bench data --json` measured on a node: bytes read, the mean size
    of an image, and images a second through the run's loader.

    Raises FourminError for another file, or one without that loader.
    """
    with _report(path, DATA_SCHEMA, "data") as report:
        rows = {(row["stage"], row["loader"]): row for row in report["results"]}
        read, pipeline = rows["read", None], rows["pipeline", configuration.loader]
        bandwidth = 1e6 * _measured(read["megabytes_per_second"])
        image_bytes = bandwidth / _measured(read["images_per_second"])
        rate = _measured(pipeline["images_per_second"])
        source = f"measured: {path.name}, {report['hardware']}"
    return replace(
        profile,
        storage_bandwidth=bandwidth,
        decode_rate=rate,
        image_bytes=image_bytes,
        sources=tuple({**dict(profile.sources), "reading": source, "decoding": source}.items()),
    )


def _measured(value: Any, least: float = 1e-3) -> float:
    """A rate or a size that can have been measured. Raises TypeError or ValueError for another."""
    if not least <= float(value) <= 1e15:
        raise ValueError(f"{value} was never measured")
    return float(value)


@contextmanager
def _report(path: Path, schema: str, command: str) -> Iterator[Any]:
    """A microbenchmark's JSON. Raises FourminError for another file, and for what is not in it."""
    try:
        with told(f"cannot read {path}"):
            report: Any = loads_strict(read_given(path))
        if report["schema"] != schema:
            raise ValueError(f"its schema is {report['schema']!r}")
        yield report
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        why = f"missing: {error}" if isinstance(error, KeyError) else str(error)
        said = f"{path} is no report of `bench {command}`"
        raise FourminError(said, why, _MEASURE.format(command)) from None
