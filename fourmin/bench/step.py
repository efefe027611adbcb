"""`fourmin bench step`: times of training steps on synthetic images, against what bounds them."""

from __future__ import annotations

import dataclasses
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from fourmin.base.errors import FourminError, unknown
from fourmin.bench import peers as plain
from fourmin.bench.peers import PLAIN, Plain
from fourmin.bench.timing import median_time, times
from fourmin.bench.updates import UpdateResult, measure_update
from fourmin.estimate.compute import RECOMPUTE
from fourmin.estimate.measured import STEP_SCHEMA
from fourmin.recipe.configuration import FIELDS, Configuration
from fourmin.recipe.fields import AUTO
from fourmin.recipe.machine import usual_cpu_precision
from fourmin.recipe.presets import load_preset
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.ruleset import load_ruleset
from fourmin.system.environment import DEVICE_QUEUES
from fourmin.system.hardware import processor
from fourmin.training.backends import keep_freed_memory, set_backends
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.native import NativeAllReduce
from fourmin.training.fast.choose import build_step, reason_against
from fourmin.training.models import build_model, forward_flops
from fourmin.training.models.init import initialize
from fourmin.training.models.resnet import recompute_blocks
from fourmin.training.optim.build import build_optimizer
from fourmin.training.precision import DTYPES, Precision
from fourmin.training.step import MicroBatch

DETERMINISTIC = "deterministic"

PEERS: dict[str, str] = {
    **PLAIN,
    "eager": "fourmin's, by torch's modules: --set step=eager",
    "fast": "fourmin's, with fused kernels and CUDA graphs: --set step=fast",
    RECOMPUTE: "the eager one, which computes residual blocks again: --set recompute=true",
    DETERMINISTIC: "the fast one, with the same bits each time: --set deterministic=true",
}
"""The steps that can be compared, and what each is."""

BUSY_ELSEWHERE = 0.8
"""Least ratio of processor time to wall time times threads of a CPU measurement worth printing."""
FUSION_BYTES = 4 << 20


@dataclass(frozen=True)
class StepOptions:
    """What to measure. Batches are images; `repeats` steps are timed after `warmup`."""

    model: str
    device: str
    precision: str
    batch_sizes: tuple[int, ...]
    image_size: int
    classes: int
    peers: tuple[str, ...]
    warmup: int
    repeats: int
    threads: int
    optimizers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ceilings:
    """What the machine can do at most, measured: FLOP/s of a matrix product, bytes/s of a copy."""

    matrix_product_flops: float
    matrix_product_type: str
    matrix_product_size: int
    copy_bytes_per_second: float


@dataclass(frozen=True)
class PeerResult:
    """One peer at one batch size: every step's time in seconds, or why there is none."""

    peer: str
    batch_size: int
    seconds: tuple[float, ...] = ()
    busy_ratio: float | None = None
    note: str = ""
    peak_bytes: int | None = None
    """Most memory of the GPU that was in use at once, weights and all; None on a CPU."""

    @property
    def images_per_second(self) -> float | None:
        """By the median step; None if there is no time worth reporting."""
        if not self.seconds or self.disturbed:
            return None
        return self.batch_size / statistics.median(self.seconds)

    @property
    def disturbed(self) -> bool:
        """Whether something else used the processors meanwhile (CPU only)."""
        return self.busy_ratio is not None and self.busy_ratio < BUSY_ELSEWHERE


@dataclass
class StepReport:
    options: StepOptions
    hardware: str
    software: str
    ceilings: Ceilings
    flops_per_image: float
    """Floating-point operations of a training step (three forward passes) for each image."""
    update_seconds: float | None = None
    """Of the fused update alone; None where the fast step cannot run."""
    results: list[PeerResult] = field(default_factory=list)
    updates: list[UpdateResult] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, every raw time included."""
        stated = ("model", "device", "precision", "image_size", "threads")
        return {
            "schema": STEP_SCHEMA,
            "hardware": self.hardware,
            "software": self.software,
            **{name: getattr(self.options, name) for name in stated},
            "ceilings": dataclasses.asdict(self.ceilings),
            "flops_per_image": self.flops_per_image,
            "update_seconds": self.update_seconds,
            "updates": [vars(one) for one in self.updates],
            "results": [
                {
                    "peer": result.peer,
                    "batch_size": result.batch_size,
                    "images_per_second": result.images_per_second,
                    **vars(result),
                }
                for result in self.results
            ],
        }

    def to_text(self) -> str:
        options, ceilings = self.options, self.ceilings
        lines = [
            f"{options.model}, {options.precision}, {options.image_size}x{options.image_size}, "
            f"synthetic images on the {options.device}; median of {options.repeats} steps",
            f"{self.hardware}; {self.software}",
            f"ceilings measured here: matrix product of {ceilings.matrix_product_size} "
            f"({ceilings.matrix_product_type}) {_scaled(ceilings.matrix_product_flops)}FLOP/s, "
            f"copy {_scaled(ceilings.copy_bytes_per_second)}B/s read and written",
            "",
            f"{'step':<14}{'batch':>7}{'images/s':>11}{'ms':>10}{'of matrix':>11}{'of plain':>10}"
            f"{'GiB':>7}",
            *map(self._line, self.results),
        ]
        if self.update_seconds is not None:
            lines += ["", f"update of all parameters alone: {self.update_seconds * 1e3:.3f} ms"]
        lines += ["", *(f"{name}: {PEERS[name]}" for name in options.peers)]
        if self.updates:
            lines += ["", "update alone, by torch's grouped operations; sent by each the same"]
            lines += map(UpdateResult.to_text, self.updates)
        return "\n".join(lines) + "\n"

    def _line(self, result: PeerResult) -> str:
        start = f"{result.peer:<14}{result.batch_size:>7}"
        rate = result.images_per_second
        if rate is None:
            note = result.note
            if result.disturbed:
                note = (
                    f"not reported: the process got {result.busy_ratio:.0%} of its processors, "
                    "something else was running"
                )
            return f"{start}  {note}"
        share = rate * self.flops_per_image / self.ceilings.matrix_product_flops
        usual = {one.batch_size: one for one in self.results if one.peer == "plain"}
        base = usual[result.batch_size].images_per_second if result.batch_size in usual else None
        ratio = f"{rate / base:>9.2f}x" if base else f"{'':>10}"
        note = f"  {result.note}" if result.note else ""
        milliseconds = statistics.median(result.seconds) * 1e3
        memory = f"{result.peak_bytes / (1 << 30):>7.1f}" if result.peak_bytes else f"{'':>7}"
        return f"{start}{rate:>11,.0f}{milliseconds:>10.2f}{share:>11.1%}{ratio}{memory}{note}"


def _scaled(value: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}"
    return f"{value:.4g} "


def measure(
    *,
    preset: str | None,
    batch_sizes: tuple[int, ...],
    peers: tuple[str, ...],
    device: str,
    precision: str,
    image_size: int | None,
    repeats: int,
    warmup: int,
    threads: int | None,
    say: Callable[[str], None],
    optimizers: tuple[str, ...] = (),
) -> StepReport:
    """Every peer at every batch size, in this process, one after the other.

    What is left open is settled by what this machine has. `say` gets a line about each
    measurement before it starts. A peer that does not run here is reported with the reason.
    Raises FourminError for an unknown preset, peer, device or precision, and for a GPU that is
    not there.
    """
    asked = [("device", device), ("precision", precision), *(("peer", peer) for peer in peers)]
    asked += [("optimizer", name) for name in optimizers]
    for name, value in asked:
        known = [*PEERS] if name == "peer" else [AUTO, *FIELDS[name].choices]
        if value not in known:
            raise unknown(f"no {name} {value!r}", value, known)
    on_gpu = bool(cuda_gpus(device)) and device != "cpu"
    config = load_preset(preset or ("resnet50-64k" if on_gpu else "digits"))
    config = dataclasses.replace(
        config,
        device="cuda" if on_gpu else "cpu",
        precision=precision if precision != AUTO else ("fp16" if on_gpu else usual_cpu_precision()),
        image_size=image_size or config.image_size,
    )
    options = StepOptions(
        **{name: getattr(config, name) for name in ("model", "device", "precision", "image_size")},
        batch_sizes=batch_sizes or ((256,) if on_gpu else (128,)),
        classes=int(load_ruleset().benchmark(config.benchmark).dataset["classes"]),
        peers=peers or ((*PLAIN, "eager", "fast") if on_gpu else ("plain", "eager")),
        warmup=warmup,
        repeats=repeats,
        threads=threads or len(os.sched_getaffinity(0)),
        optimizers=optimizers,
    )
    return _measure(options, config, say)


def cuda_gpus(device: str) -> int:
    """How many torch sees. Raises FourminError where `device` is cuda and there is none."""
    for variable, value in DEVICE_QUEUES.items():
        os.environ.setdefault(variable, value)  # read by CUDA when it is first used
    gpus = int(torch.cuda.device_count())
    if device == "cuda" and not gpus:
        raise FourminError("there is no CUDA GPU here", next_step="--device cpu")
    return gpus


def _measure(options: StepOptions, config: Configuration, say: Callable[[str], None]) -> StepReport:
    set_backends(options.threads)
    device = torch.device(options.device)
    say("ceilings")
    report = StepReport(
        options,
        hardware_name(device),
        f"torch {torch.__version__}",
        _ceilings(device, options.precision),
        3.0 * forward_flops(options.model, options.image_size, options.classes),
    )
    for batch_size in options.batch_sizes:
        batch = _batch(options, batch_size, device)
        for peer in options.peers:
            say(f"{peer}, batch {batch_size}")
            set_backends(options.threads, peer == DETERMINISTIC)
            report.results.append(_measure_peer(peer, options, config, batch))
            if report.update_seconds is None and peer == "fast":
                with ready_step("fast", config, options.classes, 64) as (step, note):
                    if not note:
                        report.update_seconds = median_time(step.update_parameters, device)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    set_backends(options.threads)
    for name in options.optimizers:
        say(f"update by {name}")
        own = dataclasses.replace(config, optimizer=name, nesterov=False, base_learning_rate=0)
        report.updates.append(measure_update(_model(own, options.classes)[0], own))
    return report


def hardware_name(device: torch.device) -> str:
    """The GPU, or the processor and how many of it this process may use."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{processor()['model']}, {len(os.sched_getaffinity(0))} processors"


def _ceilings(device: torch.device, precision: str) -> Ceilings:
    """A large matrix product in the step's type, and a copy that no cache holds."""
    size, elements = (8192, 1 << 30) if device.type == "cuda" else (1024, 1 << 26)
    a, b = (torch.randn(size, size, device=device).to(DTYPES[precision]) for _ in range(2))
    product = median_time(lambda: torch.mm(a, b), device)
    source = torch.ones(elements, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = median_time(lambda: target.copy_(source), device)
    return Ceilings(2.0 * size**3 / product, precision, size, 2.0 * elements / copy)


def _batch(options: StepOptions, size: int, device: torch.device) -> MicroBatch:
    generator = torch.Generator(device).manual_seed(0)
    shape = (size, 3, options.image_size, options.image_size)
    images = torch.randn(shape, device=device, generator=generator)
    labels = torch.randint(0, options.classes, (size,), device=device, generator=generator)
    return images.to(memory_format=torch.channels_last), labels


def _measure_peer(
    peer: str, options: StepOptions, config: Configuration, batch: MicroBatch
) -> PeerResult:
    device, size = torch.device(options.device), batch[1].numel()
    on_gpu, peak = device.type == "cuda", None
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    try:
        with ExitStack() as stack:
            if peer in PLAIN:
                call, note = _plain(config, options.classes, batch).step(peer), ""
            else:
                most = options.warmup + options.repeats + 8
                ready = ready_step(peer, config, options.classes, most)
                step, note = stack.enter_context(ready)
                call = partial(step, [batch])
            for _ in range(options.warmup):
                call()
            keep_freed_memory(options.device, processes=1)
            wall, used = time.perf_counter(), time.process_time()
            seconds = times(call, device, options.repeats)
            wall, used = time.perf_counter() - wall, time.process_time() - used
            peak = torch.cuda.max_memory_allocated(device) if on_gpu else None
    except (RuntimeError, ValueError, ImportError) as error:
        return PeerResult(peer, size, note=f"failed: {str(error).splitlines()[0][:200]}")
    busy = None if on_gpu else used / (wall * options.threads)
    return PeerResult(peer, size, tuple(seconds), busy, note, peak)


@contextmanager
def ready_step(
    kind: str, config: Configuration, classes: int, most_steps: int
) -> Iterator[tuple[Any, str]]:
    """A run's step at the start of training, and a note where it is another than asked for.

    `kind` is one of the configuration's, or RECOMPUTE, or DETERMINISTIC, whose caller has set the
    backends so.
    """
    model, precision = _model(config, classes)
    if kind == DETERMINISTIC:
        kind = "fast"
    if kind == RECOMPUTE:
        kind = "eager"
        recompute_blocks(model)
    optimizer = build_optimizer(model, config)
    reducer = GradientReducer(model.named_parameters(), NativeAllReduce(1), 1, FUSION_BYTES)
    reason = reason_against(model, optimizer, precision) if kind == "fast" else None
    step = build_step(
        kind, model, optimizer, reducer, precision, LearningRateSchedule(config, 1000),
        config.label_smoothing, total_steps=most_steps,
        growth_interval=config.loss_scale_growth_interval, world_size=1, say=lambda _line: None,
    )  # fmt: skip
    try:
        yield step, f"ran the eager step: {reason}" if reason else ""
    finally:
        reducer.close()


def _plain(config: Configuration, classes: int, batch: MicroBatch) -> Plain:
    """The plain script on the same images."""

    def make() -> nn.Module:
        if config.model == "resnet50":
            return plain.resnet50(classes)
        return _model(config, classes)[0]

    return Plain(make, config.precision, *batch)


def _model(config: Configuration, classes: int) -> tuple[nn.Module, Precision]:
    device = torch.device(config.device)
    normalization = {"bn_momentum": config.bn_momentum, "bn_epsilon": config.bn_epsilon}
    model = build_model(config.model, num_classes=classes, **normalization)
    model.to(device).to(memory_format=torch.channels_last)
    initialize(model, 1, config.initialization, config.zero_last_gamma)
    model.train()
    scaling = config.loss_scale, config.loss_scale_growth_interval
    return model, Precision(config.precision, device, *scaling)
