"""Which presets can run here, and what the others need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.text import how_many
from fourmin.campaign.requirements import (
    Place,
    look_for_data,
    missing,
    refusals,
    require_dataset,
)
from fourmin.datasets.on_demand import ON_DEMAND
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import PRESETS, load_preset
from fourmin.recipe.steps import against_this_machine, with_step
from fourmin.ruleset import Benchmark, load_ruleset
from fourmin.system.hardware import usable_gpus


@dataclass(frozen=True)
class PresetCheck:
    """A preset, how it would run here, and what it is missing; nothing where it can run."""

    name: str
    how: str
    missing: tuple[FourminError, ...]

    @property
    def can_run(self) -> bool:
        return not self.missing

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "can_run": self.can_run,
            "how": self.how,
            "missing": [one.to_json() for one in self.missing],
        }


def check_presets(data_dir: Path | None) -> Iterator[PresetCheck]:
    """Every preset, on the images in `data_dir` where they are its benchmark's."""
    gpus, against_fast = usable_gpus(), against_this_machine()
    option = Place.seen().other_loader
    for name in PRESETS:
        configuration = load_preset(name)
        if option:
            configuration = configuration.with_overrides({"loader": "torchvision"})
        configuration = with_step(configuration.resolved(gpus, keep_workers=False), against_fast)
        benchmark = load_ruleset().benchmark(configuration.benchmark)
        how = ", ".join(filter(None, (_how(configuration), option)))
        yield PresetCheck(name, how, tuple(_missing(configuration, benchmark, data_dir)))


def _missing(
    configuration: Configuration, benchmark: Benchmark, data_dir: Path | None
) -> Iterator[FourminError]:
    yield from refusals(configuration.check)
    place = Place.seen()
    data, without_data = look_for_data(benchmark, place, data_dir)
    other = [] if data is None else refusals(lambda: require_dataset(data, benchmark))
    if other and benchmark.dataset["name"] in ON_DEMAND:
        # What fourmin makes itself needs no folder.
        other, (_, without_data) = [], look_for_data(benchmark, place, None)
    yield from (*missing(configuration, place), *without_data, *other)


def _how(configuration: Configuration) -> str:
    where = "GPU" if configuration.device == "cuda" else "CPU"
    workers = f"{how_many(configuration.procs_per_node, 'worker')} on the {where}"
    nodes = f"{configuration.nodes} nodes of " if configuration.nodes > 1 else ""
    return f"{nodes}{workers}, {configuration.precision}, {configuration.step} step"
