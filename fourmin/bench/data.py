"""`fourmin bench data`: images/s of the parts of the input, and of training fed by it."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fourmin.base.errors import FourminError, unknown
from fourmin.bench.decode import Turn, decoding, in_threads
from fourmin.bench.step import cuda_gpus, hardware_name, ready_step
from fourmin.campaign.requirements import get_data
from fourmin.datasets.manifest import Manifest
from fourmin.datasets.shards import holds_shards
from fourmin.recipe.configuration import FIELDS, Configuration
from fourmin.recipe.presets import load_preset
from fourmin.recipe.steps import against_this_machine, with_step
from fourmin.ruleset import load_ruleset
from fourmin.training.backends import keep_freed_memory, set_backends
from fourmin.training.data import open_data
from fourmin.training.data.loader import Batch
from fourmin.training.data.order import epoch_permutation
from fourmin.training.data.source import open_source

STAGES = {
    "read": "the files' bytes, in the order of an epoch; after the first pass from the page cache",
    "decode": "bytes in memory to whole RGB images",
    "pipeline": "all that a loader does: read, decode, cut, scale, normalise, onto the device",
    "synthetic": "the training step on images that are on the device already",
    "fed": "the same step on what the loader gives",
}
"""What is measured, in this order."""

SEED = 1
WARMUP = 8
"""Batches before each window, not timed: as many as loaders hold ahead, so that none is free."""
IN_MEMORY = 2048
"""Files at most that the measurement of decoding keeps."""
MOST_STEPS = 1 << 20


@dataclass(frozen=True)
class DataOptions:
    """What to measure: `repeats` windows of about `seconds` each, for every stage."""

    data: str
    layout: str
    images: int
    model: str
    device: str
    precision: str
    step: str
    decoder: str
    batch_size: int
    image_size: int
    threads: int
    loaders: tuple[str, ...]
    seconds: float
    repeats: int
    decoded_cache: int = 0
    """MiB of decoded images: if not 0, each loader is also measured with the cache, filled."""


@dataclass(frozen=True)
class DataResult:
    """One stage of one loader ('' where no loader is in it): images/s of every window.

    `decoded_cache`: MiB of decoded images that the loader could keep.
    """

    stage: str
    loader: str
    rates: tuple[float, ...] = ()
    megabytes_per_second: float | None = None
    note: str = ""
    decoded_cache: int = 0

    @property
    def contender(self) -> str:
        """The loader, and whether with the cache, for people."""
        return f"{self.loader}, cached" if self.decoded_cache else self.loader

    @property
    def images_per_second(self) -> float | None:
        """The median window; None where it was not measured."""
        return statistics.median(self.rates) if self.rates else None


@dataclass
class DataReport:
    options: DataOptions
    hardware: str
    software: str
    results: list[DataResult] = field(default_factory=list)

    def of_synthetic(self, one: DataResult) -> float | None:
        """What training fed by a loader reaches of training on synthetic images."""
        rates = (other.images_per_second for other in self.results if other.stage == "synthetic")
        rate, synthetic = one.images_per_second, next(rates, None)
        return rate / synthetic if one.stage == "fed" and rate and synthetic else None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, every window included."""
        return {
            "schema": "fourmin-bench-data-1",
            "hardware": self.hardware,
            "software": self.software,
            **{name: value for name, value in vars(self.options).items() if name != "loaders"},
            "results": [
                {
                    "stage": one.stage,
                    "loader": one.loader or None,
                    "decoded_cache": one.decoded_cache,
                    "images_per_second": one.images_per_second,
                    "of_synthetic": self.of_synthetic(one),
                    "megabytes_per_second": one.megabytes_per_second,
                    "windows": list(one.rates),
                    "note": one.note,
                }
                for one in self.results
            ],
        }

    def to_text(self) -> str:
        options = self.options
        lines = [
            f"{options.images:,} training images of {options.data} ({options.layout}); "
            f"{options.threads} loader threads, decoder {options.decoder}",
            f"{options.model}, {options.precision}, step {options.step}, batch "
            f"{options.batch_size} of {options.image_size}x{options.image_size} on the "
            f"{options.device}; median of {options.repeats} windows of {options.seconds:g} s",
            f"{self.hardware}; {self.software}",
            "",
            f"{'stage':<12}{'loader':<21}{'images/s':>11}{'MB/s':>9}{'of synthetic':>14}",
            *map(self._line, self.results),
            "",
            *(f"{name}: {meaning}" for name, meaning in STAGES.items()),
        ]
        if options.decoded_cache:
            lines.append(
                f"cached: with up to {options.decoded_cache} MiB of decoded images, kept from an "
                "epoch before that is not timed"
            )
        return "\n".join(lines) + "\n"

    def _line(self, one: DataResult) -> str:
        start = f"{one.stage:<12}{one.contender:<21}"
        rate, volume = one.images_per_second, one.megabytes_per_second
        if rate is None:
            return f"{start}  {one.note}"
        share = self.of_synthetic(one)
        return (
            f"{start}{rate:>11,.0f}"
            + (f"{volume:>9,.0f}" if volume is not None else f"{'':>9}")
            + (f"{share:>14.2f}" if share is not None else "")
            + (f"  {one.note}" if one.note else "")
        )


def measure(
    *,
    data_dir: Path | None,
    preset: str | None,
    loaders: tuple[str, ...],
    seconds: float,
    repeats: int,
    changes: Mapping[str, Any],
    say: Callable[[str], None],
) -> DataReport:
    """Every stage for every loader, in this process; `changes` are the configuration's fields.

    What is left open (None) is settled by what this machine has; without `data_dir`, the preset's
    images where fourmin makes them. `say` gets a line about each measurement before it starts. A
    loader that does not run here is reported with the reason. Raises FourminError for an unknown
    preset, loader, device or precision, for data or a GPU that is not there, and when an image
    cannot be read.
    """
    for loader in loaders:
        if loader not in FIELDS["loader"].choices:
            raise unknown(f"no loader {loader!r}", loader, FIELDS["loader"].choices)
    gpus = cuda_gpus(changes["device"])
    size = {"global_batch_size": 256 if gpus and changes["device"] != "cpu" else 64}
    one_worker = ("nodes", "procs_per_node", "gradient_accumulation_steps", "bn_span")
    config = load_preset(preset or ("digits" if data_dir is None else "resnet50-256"))
    config = config.with_overrides(
        size
        | {name: value for name, value in changes.items() if value is not None}
        | dict.fromkeys(one_worker, 1)
    ).resolved(gpus, keep_workers=True)
    config = with_step(config, against_this_machine())
    # The decoder belongs to DALI alone; each loader is measured with what it can take.
    dataclasses.replace(config, loader="dali").check()
    found = get_data(load_ruleset().benchmark(config.benchmark), data_dir)
    folder, manifest = found.folder, found.manifest
    same = ("model", "device", "precision", "step", "decoder", "image_size", "decoded_cache")
    options = DataOptions(
        data=folder.name,
        layout="shards" if holds_shards(folder) else "tree",
        images=len(manifest.split("train")),
        batch_size=config.global_batch_size,
        threads=config.loader_threads,
        loaders=loaders or FIELDS["loader"].choices,
        seconds=seconds,
        repeats=repeats,
        **{name: getattr(config, name) for name in same},
    )
    set_backends(config.threads)
    hardware = hardware_name(torch.device(options.device))
    report = DataReport(options, hardware, f"torch {torch.__version__}")
    say("reading")
    read = _measured(DataResult("read", ""), options, _reading(options, manifest, folder))
    sizes = manifest.split("train").sizes
    volume = (read.images_per_second or 0.0) * sum(sizes) / len(sizes) / 1e6
    report.results.append(dataclasses.replace(read, megabytes_per_second=volume))
    encoded = _some_files(manifest, folder)
    for ready in _contenders(options, config):
        asked = DataResult("pipeline", ready.loader, decoded_cache=ready.decoded_cache)
        if not ready.decoded_cache:
            say(f"decoding, {asked.contender}")
            alone = dataclasses.replace(asked, stage="decode")
            report.results.append(_measured(alone, options, decoding(encoded, ready)))
        say(f"pipeline, {asked.contender}")
        report.results.append(_measured(asked, options, _pipeline(ready, manifest, folder)))
    say("training")
    report.results += _training(options, config, manifest, folder)
    return report


def _contenders(options: DataOptions, config: Configuration) -> Iterator[Configuration]:
    """The configuration of each loader, without the cache of decoded images and then with it."""
    for loader in options.loaders:
        decoder = config.decoder if loader == "dali" else "cpu"
        for cache in dict.fromkeys((0, options.decoded_cache)):
            yield dataclasses.replace(config, loader=loader, decoder=decoder, decoded_cache=cache)


def _window(turn: Turn, options: DataOptions) -> float:
    """Images/s of `turn`, repeated for `seconds`, until the device has done them all."""
    wait: Callable[[], None] = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    for _ in range(WARMUP):
        turn()
    wait()
    images, start = 0, time.perf_counter()
    while not images or time.perf_counter() - start < options.seconds:
        images += turn()
    wait()
    return images / (time.perf_counter() - start)


def _measured(
    asked: DataResult, options: DataOptions, opened: AbstractContextManager[Turn]
) -> DataResult:
    """The windows of what `opened` gives; what keeps it from opening is a note."""
    with ExitStack() as stack:
        try:
            turn = stack.enter_context(opened)
        except (FourminError, ImportError) as error:
            note = f"not measured: {str(error).splitlines()[0]}"
            return dataclasses.replace(asked, note=note)
        rates = tuple(_window(turn, options) for _ in range(options.repeats))
    return dataclasses.replace(asked, rates=rates)


@contextmanager
def _reading(options: DataOptions, manifest: Manifest, data_dir: Path) -> Iterator[Turn]:
    split, threads = manifest.split("train"), options.threads
    epochs = (epoch_permutation(SEED, epoch, len(split)).tolist() for epoch in itertools.count(1))
    order = itertools.chain.from_iterable(epochs)
    with closing(open_source(data_dir, manifest)) as source, ThreadPoolExecutor(threads) as pool:

        def read(indices: list[int]) -> None:
            for index in indices:
                source.read(split, index)

        yield lambda: in_threads(pool, threads, read, order, options.batch_size)


def _some_files(manifest: Manifest, data_dir: Path) -> list[bytes]:
    split = manifest.split("train")
    chosen = epoch_permutation(SEED, 1, len(split))[:IN_MEMORY].tolist()
    with closing(open_source(data_dir, manifest)) as source:
        return [source.read(split, index) for index in chosen]


def _batches(
    config: Configuration, manifest: Manifest, data_dir: Path
) -> tuple[Iterator[Batch], Any]:
    """Batches of epoch after epoch, and the loader that gives them.

    With a cache of decoded images an epoch has filled it, as later ones of a run find it.
    """
    loader = open_data(
        config,
        manifest=manifest,
        data_dir=data_dir,
        seed=SEED,
        device=torch.device(config.device),
        steps=sys.maxsize,
    )
    epochs = (loader.train_epoch(epoch) for epoch in itertools.count(1))
    if config.decoded_cache:
        for _ in next(epochs):
            pass
    return itertools.chain.from_iterable(epochs), loader


@contextmanager
def _pipeline(config: Configuration, manifest: Manifest, data_dir: Path) -> Iterator[Turn]:
    batches, loader = _batches(config, manifest, data_dir)
    with loader:
        yield lambda: next(batches).labels.numel()


def _training(
    options: DataOptions, config: Configuration, manifest: Manifest, data_dir: Path
) -> list[DataResult]:
    """Synthetic and fed windows in turns, so that both meet the same machine."""
    shape = (options.batch_size, 3, options.image_size, options.image_size)
    images = torch.randn(shape, device=options.device).to(memory_format=torch.channels_last)
    if options.precision == "fp16":
        images = images.half()
    labels = torch.zeros(options.batch_size, dtype=torch.int64, device=options.device)
    given = itertools.repeat(Batch(images, labels, torch.arange(options.batch_size)))
    missing = []
    with ExitStack() as stack:
        classes = len(manifest.class_names)
        step, note = stack.enter_context(ready_step(config.step, config, classes, MOST_STEPS))

        def train(batches: Iterator[Batch]) -> int:
            batch = next(batches)
            step([(batch.images, batch.labels)])
            return int(batch.labels.numel())

        train(given)
        keep_freed_memory(options.device, processes=1)
        turns: list[tuple[DataResult, Turn]]
        turns = [(DataResult("synthetic", "", note=note), partial(train, given))]
        for ready in _contenders(options, config):
            asked = DataResult("fed", ready.loader, decoded_cache=ready.decoded_cache)
            try:
                batches, loader = _batches(ready, manifest, data_dir)
            except FourminError as error:
                missing.append(dataclasses.replace(asked, note=f"not measured: {error.what}"))
                continue
            stack.enter_context(loader)
            turns.append((asked, partial(train, batches)))
        rounds = [[_window(turn, options) for _, turn in turns] for _ in range(options.repeats)]
    found = zip(turns, zip(*rounds, strict=True), strict=True)
    return [dataclasses.replace(asked, rates=rates) for (asked, _), rates in found] + missing
