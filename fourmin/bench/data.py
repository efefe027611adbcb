"""`fourmin bench data`: settles what to measure and has it measured.

The measuring itself is `fourmin.training.measure_data`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from fourmin.base.errors import FourminError, list_names
from fourmin.bench.data_report import DataOptions, DataReport
from fourmin.bench.stack import load_measurer
from fourmin.campaign.requirements import get_data
from fourmin.datasets.shards import holds_shards
from fourmin.recipe.configuration import FIELDS, Configuration
from fourmin.recipe.presets import load_preset
from fourmin.ruleset import load_ruleset


def measure_and_report(
    *,
    data_dir: Path | None,
    preset: str | None,
    loaders: tuple[str, ...],
    batch_size: int | None,
    device: str,
    precision: str,
    decoder: str | None,
    step: str | None,
    threads: int | None,
    decoded_cache: int,
    seconds: float,
    repeats: int,
    say: Callable[[str], None],
) -> DataReport:
    """Settle what was left open by what this machine has, and measure.

    Without `data_dir`, the preset's images where fourmin makes them. Raises FourminError for an
    unknown preset, loader, device or precision, for data or a GPU that is not there, and
    without the training stack.
    """
    measurer, gpus = load_measurer("measure_data", device)
    name = preset or ("digits" if data_dir is None else "resnet50-256")
    changes = {
        "device": device,
        "precision": precision,
        "decoder": decoder,
        "global_batch_size": batch_size or (256 if gpus and device != "cpu" else 64),
        "step": step,
        "loader_threads": threads,
        "decoded_cache": decoded_cache,
    }
    config = load_preset(name).with_overrides(
        {key: value for key, value in changes.items() if value is not None}
        | {"nodes": 1, "procs_per_node": 1, "gradient_accumulation_steps": 1, "bn_span": 1}
    )
    config = config.resolved(gpus, keep_workers=True)
    _check(config, loaders)
    found = get_data(load_ruleset().benchmark(config.benchmark), data_dir)
    folder, manifest = found.folder, found.manifest
    options = DataOptions(
        data=folder.name,
        layout="shards" if holds_shards(folder) else "tree",
        images=len(manifest.split("train")),
        model=config.model,
        device=config.device,
        precision=config.precision,
        step=config.step,
        decoder=config.decoder,
        batch_size=config.global_batch_size,
        image_size=config.image_size,
        threads=config.loader_threads,
        loaders=loaders or FIELDS["loader"].choices,
        seconds=seconds,
        repeats=repeats,
        decoded_cache=config.decoded_cache,
    )
    report: DataReport = measurer.measure_data(options, config, manifest, folder, say)
    return report


def _check(config: Configuration, loaders: tuple[str, ...]) -> None:
    for name in loaders:
        if name not in FIELDS["loader"].choices:
            raise FourminError(
                f"no loader {name!r}", next_step=f"known: {list_names([*FIELDS['loader'].choices])}"
            )
    # The decoder belongs to DALI alone; each loader is measured with what it can take.
    dataclasses.replace(config, loader="dali").check()
