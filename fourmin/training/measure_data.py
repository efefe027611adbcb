"""Images/s of the parts of the input and of training fed by it, for `fourmin bench data`."""

from __future__ import annotations

import dataclasses
import io
import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourmin.base.errors import FourminError
from fourmin.bench.data_report import DataOptions, DataReport, DataResult
from fourmin.bench.step_report import StepOptions
from fourmin.datasets.manifest import Manifest
from fourmin.recipe.configuration import Configuration
from fourmin.training.backends import keep_freed_memory, set_backends
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.native import NativeAllReduce
from fourmin.training.data import open_data
from fourmin.training.data.loader import Batch
from fourmin.training.data.order import epoch_permutation
from fourmin.training.data.source import open_source
from fourmin.training.fast.choose import build_step, reason_against
from fourmin.training.measure import FUSION_BYTES, hardware_name, step_parts
from fourmin.training.optim.build import build_optimizer

SEED = 1
WARMUP = 8
"""Batches before each window, not timed: as many as loaders hold ahead, so that none is free."""
IN_MEMORY = 2048
"""Files at most that the measurement of decoding keeps."""
MOST_STEPS = 1 << 20

Turn = Callable[[], int]
"""Does a batch's worth of work, perhaps queued on the device; returns its images."""


def measure_data(
    options: DataOptions,
    config: Configuration,
    manifest: Manifest,
    data_dir: Path,
    say: Callable[[str], None],
) -> DataReport:
    """Measure every stage for every loader, in this process.

    `say` gets a line about each measurement before it starts. A loader that does not run here is
    reported with the reason. Raises FourminError when an image cannot be read.
    """
    set_backends(config.threads)
    device = torch.device(options.device)
    report = DataReport(options, hardware_name(device), f"torch {torch.__version__}")
    say("reading")
    report.results.append(_read(options, manifest, data_dir, device))
    encoded = _some_files(manifest, data_dir)
    for ready in _contenders(options, config):
        asked = DataResult("", ready.loader, decoded_cache=ready.decoded_cache)
        if not ready.decoded_cache:
            say(f"decoding, {asked.contender}")
            decoding = dataclasses.replace(asked, stage="decode")
            report.results.append(_guarded(decoding, options, partial(_decode, encoded, ready)))
        say(f"pipeline, {asked.contender}")
        opened = partial(_pipeline, ready, manifest, data_dir)
        pipeline = dataclasses.replace(asked, stage="pipeline")
        report.results.append(_guarded(pipeline, options, opened))
    say("training")
    report.results += _training(options, config, manifest, data_dir)
    return report


def _contenders(options: DataOptions, config: Configuration) -> list[Configuration]:
    """The configuration of each loader, without the cache of decoded images and then with it."""
    return [
        dataclasses.replace(
            config,
            loader=loader,
            decoder=config.decoder if loader == "dali" else "cpu",
            decoded_cache=mebibytes,
        )
        for loader in options.loaders
        for mebibytes in dict.fromkeys((0, options.decoded_cache))
    ]


def _windows(turn: Turn, options: DataOptions, device: torch.device) -> tuple[float, ...]:
    return tuple(_window(turn, options.seconds, device) for _ in range(options.repeats))


def _window(turn: Turn, seconds: float, device: torch.device) -> float:
    """Images/s of `turn`, repeated for `seconds`, until the device has done them all."""
    for _ in range(WARMUP):
        turn()
    _wait(device)
    images, start = 0, time.perf_counter()
    while not images or time.perf_counter() - start < seconds:
        images += turn()
    _wait(device)
    return images / (time.perf_counter() - start)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _guarded(
    asked: DataResult, options: DataOptions, opened: Callable[[], tuple[Turn, Any]]
) -> DataResult:
    """Measure what `opened` gives, a turn and what to close; a missing package is a note."""
    try:
        turn, held = opened()
    except (FourminError, ImportError) as error:
        note = f"not measured: {str(error).splitlines()[0]}"
        return dataclasses.replace(asked, note=note)
    try:
        rates = _windows(turn, options, torch.device(options.device))
        return dataclasses.replace(asked, rates=rates)
    finally:
        held.close()


def _endless_order(count: int) -> Iterator[int]:
    """Sample indices of epoch after epoch."""
    for epoch in itertools.count(1):
        yield from epoch_permutation(SEED, epoch, count).tolist()


def _read(
    options: DataOptions, manifest: Manifest, data_dir: Path, device: torch.device
) -> DataResult:
    source = open_source(data_dir, manifest)
    split = manifest.split("train")
    order = _endless_order(len(split))
    try:
        with ThreadPoolExecutor(options.threads) as pool:

            def turn() -> int:
                indices = list(itertools.islice(order, options.batch_size))
                step = -(-len(indices) // options.threads)
                spans = (indices[at : at + step] for at in range(0, len(indices), step))
                list(pool.map(lambda span: [source.read(split, one) for one in span], spans))
                return len(indices)

            result = DataResult("read", "", _windows(turn, options, device))
    finally:
        source.close()
    mean_bytes = sum(split.sizes) / len(split)
    rate = result.images_per_second or 0.0
    return dataclasses.replace(result, megabytes_per_second=rate * mean_bytes / 1e6)


def _some_files(manifest: Manifest, data_dir: Path) -> list[bytes]:
    source, split = open_source(data_dir, manifest), manifest.split("train")
    chosen = epoch_permutation(SEED, 1, len(split))[:IN_MEMORY].tolist()
    files = [source.read(split, index) for index in chosen]
    source.close()
    return files


def _decode(encoded: list[bytes], config: Configuration) -> tuple[Turn, Any]:
    endless = itertools.cycle(encoded)
    size = config.global_batch_size
    if config.loader == "dali":
        from fourmin.training.measure_decode import DaliDecoder

        arrays = itertools.cycle([np.frombuffer(data, dtype=np.uint8) for data in encoded])
        decoder = DaliDecoder(
            lambda: list(itertools.islice(arrays, size)),
            size,
            config.loader_threads,
            torch.device(config.device),
            mixed=config.decoder == "mixed",
        )
        return decoder.run, decoder

    from PIL import Image

    from fourmin.training.data.torchvision_loader import as_rgb

    pool = ThreadPoolExecutor(config.loader_threads)

    def decode(files: list[bytes]) -> None:
        for data in files:
            with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as stored:
                as_rgb(stored)

    def turn() -> int:
        files = list(itertools.islice(endless, size))
        step = -(-size // config.loader_threads)
        list(pool.map(decode, (files[at : at + step] for at in range(0, size, step))))
        return size

    return turn, _Closing(pool.shutdown)


class _Closing:
    def __init__(self, close: Callable[[], object]) -> None:
        self.close = close


def _batches(
    config: Configuration, manifest: Manifest, data_dir: Path
) -> tuple[Iterator[Batch], Any]:
    """Batches of epoch after epoch, and the loader that gives them.

    With a cache of decoded images an epoch has filled it, as later ones of a run find it.
    """
    loader = open_data(
        config, manifest=manifest, data_dir=data_dir, seed=SEED, device=torch.device(config.device)
    )
    epochs = (loader.train_epoch(epoch) for epoch in itertools.count(1))
    if config.decoded_cache:
        for _ in next(epochs):
            pass
    return itertools.chain.from_iterable(epochs), loader


def _pipeline(config: Configuration, manifest: Manifest, data_dir: Path) -> tuple[Turn, Any]:
    batches, loader = _batches(config, manifest, data_dir)
    return lambda: next(batches).labels.numel(), loader


def _training(
    options: DataOptions, config: Configuration, manifest: Manifest, data_dir: Path
) -> list[DataResult]:
    """Synthetic and fed windows in turns, so that both meet the same machine."""
    device = torch.device(options.device)
    step, note, reducer = _step(options, config, len(manifest.class_names))
    shape = (options.batch_size, 3, options.image_size, options.image_size)
    images = torch.randn(shape, device=device).to(memory_format=torch.channels_last)
    if options.precision == "fp16":
        images = images.half()
    labels = torch.zeros(options.batch_size, dtype=torch.int64, device=device)

    def synthetic() -> int:
        step([(images, labels)])
        return options.batch_size

    def fed(batches: Iterator[Batch]) -> int:
        batch = next(batches)
        step([(batch.images, batch.labels)])
        return batch.labels.numel()

    synthetic()
    keep_freed_memory(options.device, processes=1)
    turns: list[tuple[DataResult, Turn]] = [(DataResult("synthetic", "", note=note), synthetic)]
    loaders, missing = [], []
    for ready in _contenders(options, config):
        asked = DataResult("fed", ready.loader, decoded_cache=ready.decoded_cache)
        try:
            batches, loader = _batches(ready, manifest, data_dir)
        except FourminError as error:
            missing.append(dataclasses.replace(asked, note=f"not measured: {error.what}"))
            continue
        loaders.append(loader)
        turns.append((asked, partial(fed, batches)))
    rates: list[list[float]] = [[] for _ in turns]
    try:
        for _ in range(options.repeats):
            for found, (_, turn) in zip(rates, turns, strict=True):
                found.append(_window(turn, options.seconds, device))
    finally:
        reducer.close()
        for loader in loaders:
            loader.close()
    measured = [
        dataclasses.replace(asked, rates=tuple(found))
        for found, (asked, _) in zip(rates, turns, strict=True)
    ]
    return measured + missing


def _step(
    options: DataOptions, config: Configuration, classes: int
) -> tuple[Callable[[list[tuple[Tensor, Tensor]]], object], str, GradientReducer]:
    """The run's step, a note where it is another than asked for, and what to close."""
    shape = StepOptions(
        model=options.model, device=options.device, precision=options.precision,
        batch_sizes=(options.batch_size,), image_size=options.image_size, classes=classes,
        peers=(), warmup=0, repeats=0, threads=config.threads,
    )  # fmt: skip
    model, precision, schedule = step_parts(shape, config, torch.channels_last)
    optimizer = build_optimizer(model, config)
    reducer = GradientReducer(model.named_parameters(), NativeAllReduce(1), 1, FUSION_BYTES)
    reason = reason_against(model, optimizer, precision) if options.step == "fast" else None
    step = build_step(
        options.step, model, optimizer, reducer, precision, schedule, config.label_smoothing,
        total_steps=MOST_STEPS, growth_interval=config.loss_scale_growth_interval, world_size=1,
        say=lambda _line: None,
    )  # fmt: skip
    return step, f"ran the eager step: {reason}" if reason else "", reducer
