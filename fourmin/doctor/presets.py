"""Which presets can run here, and what the others need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.text import how_many
from fourmin.campaign.prepare import missing_requirements
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.on_demand import ON_DEMAND
from fourmin.datasets.report import compare_with_benchmark
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import PRESETS, load_preset
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
        """Whether nothing is missing."""
        return not self.missing

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "name": self.name,
            "can_run": self.can_run,
            "how": self.how,
            "missing": [
                {"what": one.what, "why": one.why, "next_step": one.next_step}
                for one in self.missing
            ],
        }


def check_presets(data_dir: Path | None) -> Iterator[PresetCheck]:
    """Every preset, on the images in `data_dir` where they are its benchmark's."""
    gpus = usable_gpus()
    for name in PRESETS:
        configuration = load_preset(name).resolved(gpus, keep_workers=False)
        benchmark = load_ruleset().benchmark(configuration.benchmark)
        yield PresetCheck(
            name, _how(configuration), tuple(_missing(configuration, benchmark, data_dir))
        )


def _missing(
    configuration: Configuration, benchmark: Benchmark, data_dir: Path | None
) -> Iterator[FourminError]:
    try:
        configuration.check()
    except FourminError as error:
        yield error
    other = _other_images(benchmark, data_dir)
    if other is not None and benchmark.dataset["name"] in ON_DEMAND:
        other = data_dir = None  # what fourmin makes itself needs no folder
    yield from missing_requirements(configuration, benchmark, data_dir)
    if other is not None:
        yield other


def _other_images(benchmark: Benchmark, data_dir: Path | None) -> FourminError | None:
    """Why the images in `data_dir` are not the benchmark's; None where they are, or where there
    is no manifest that could tell.
    """
    if data_dir is None or not (data_dir / MANIFEST_NAME).is_file():
        return None
    try:
        manifest = Manifest.load(data_dir / MANIFEST_NAME)
    except FourminError as error:
        return error
    differences = compare_with_benchmark(manifest, benchmark.dataset)
    if not differences:
        return None
    return FourminError(
        f"{data_dir} is not the dataset of benchmark {benchmark.name}",
        "; ".join(differences),
        f"--data-dir with {benchmark.dataset['source']}; or --practice, which never counts",
    )


def _how(configuration: Configuration) -> str:
    where = "GPU" if configuration.device == "cuda" else "CPU"
    workers = f"{how_many(configuration.procs_per_node, 'worker')} on the {where}"
    nodes = f"{configuration.nodes} nodes of " if configuration.nodes > 1 else ""
    return f"{nodes}{workers}, {configuration.precision}"
