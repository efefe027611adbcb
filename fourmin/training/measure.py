"""Times of training steps on synthetic images, for `fourmin bench step`."""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fourmin.bench.step_report import Ceilings, PeerResult, StepOptions, StepReport
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.system.hardware import processor
from fourmin.training.backends import keep_freed_memory, set_backends
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.native import NativeAllReduce
from fourmin.training.fast.choose import Step, build_step, reason_against
from fourmin.training.models import build_model, forward_flops
from fourmin.training.models.init import initialize
from fourmin.training.optim.build import build_optimizer
from fourmin.training.precision import DTYPES, Precision
from fourmin.training.step import EagerStep, MicroBatch

Call = Callable[[], object]

FUSION_BYTES = 4 << 20


def measure_steps(
    options: StepOptions, config: Configuration, say: Callable[[str], None]
) -> StepReport:
    """Measure every peer of `options` at every batch size, in this process, one after the other.

    `config` gives optimizer, schedule and loss scale. `say` gets a line about each measurement
    before it starts. A peer that does not run here is reported with the reason.
    """
    set_backends(options.threads)
    device = torch.device(options.device)
    say("ceilings")
    report = StepReport(
        options,
        hardware_name(device),
        f"torch {torch.__version__}",
        measure_ceilings(device, options.precision),
        3.0 * forward_flops(options.model, options.image_size, options.classes),
    )
    for batch_size in options.batch_sizes:
        batch = _batch(options, batch_size, device)
        for peer in options.peers:
            say(f"{peer}, batch {batch_size}")
            report.results.append(_measure_peer(peer, options, config, batch))
            if report.update_seconds is None and peer == "fast":
                report.update_seconds = _measure_update(options, config)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return report


def measure_ceilings(device: torch.device, precision: str) -> Ceilings:
    """A large matrix product in the step's type, and a copy that no cache holds."""
    on_gpu = device.type == "cuda"
    size, elements = (8192, 1 << 30) if on_gpu else (1024, 1 << 26)
    a, b = (torch.randn(size, size, device=device).to(DTYPES[precision]) for _ in range(2))
    product = _best(lambda: torch.mm(a, b), device)
    source = torch.ones(elements, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = _best(lambda: target.copy_(source), device)
    return Ceilings(2.0 * size**3 / product, precision, size, 2.0 * elements / copy)


def _best(call: Call, device: torch.device) -> float:
    """The median time of a call in seconds."""
    for _ in range(2):
        call()
    times = sorted(_times(call, device, 9))
    return times[len(times) // 2]


def _times(call: Call, device: torch.device, repeats: int) -> list[float]:
    if device.type != "cuda":
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return times
    # One event between two steps: the device never waits for the host to read a clock.
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    torch.cuda.synchronize(device)
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize(device)
    return [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(events)]


def _batch(options: StepOptions, size: int, device: torch.device) -> MicroBatch:
    generator = torch.Generator(device).manual_seed(0)
    images = torch.randn(
        (size, 3, options.image_size, options.image_size), device=device, generator=generator
    )
    labels = torch.randint(0, options.classes, (size,), device=device, generator=generator)
    return images.to(memory_format=torch.channels_last), labels


def _measure_peer(
    peer: str, options: StepOptions, config: Configuration, batch: MicroBatch
) -> PeerResult:
    device = torch.device(options.device)
    size = batch[1].numel()
    try:
        call, note, close = _BUILDERS[peer](options, config, batch)
        try:
            for _ in range(options.warmup):
                call()
            keep_freed_memory(options.device, processes=1)
            wall, used = time.perf_counter(), time.process_time()
            seconds = _times(call, device, options.repeats)
            wall, used = time.perf_counter() - wall, time.process_time() - used
        finally:
            close()
    except (RuntimeError, ValueError, ImportError) as error:
        return PeerResult(peer, size, note=f"failed: {str(error).splitlines()[0][:200]}")
    busy = used / (wall * options.threads) if device.type == "cpu" else None
    return PeerResult(peer, size, tuple(seconds), busy, note)


def step_parts(
    options: StepOptions, config: Configuration, memory_format: torch.memory_format
) -> tuple[nn.Module, Precision, LearningRateSchedule]:
    """Model, precision and schedule of a step that is measured, at the start of training."""
    device = torch.device(options.device)
    model = build_model(
        options.model,
        num_classes=options.classes,
        bn_momentum=config.bn_momentum,
        bn_epsilon=config.bn_epsilon,
    )
    model.to(device).to(memory_format=memory_format)
    initialize(model, 1, config.initialization, config.zero_last_gamma)
    model.train()
    precision = Precision(
        options.precision, device, config.loss_scale, config.loss_scale_growth_interval
    )
    return model, precision, LearningRateSchedule.from_config(config, 1000)


def _own_step(kind: str, compiled: bool) -> Callable[..., tuple[Call, str, Call]]:
    def build(
        options: StepOptions, config: Configuration, batch: MicroBatch
    ) -> tuple[Call, str, Call]:
        model, precision, schedule = step_parts(options, config, torch.channels_last)
        optimizer = build_optimizer(model, config)
        reducer = GradientReducer(model.named_parameters(), NativeAllReduce(1), 1, FUSION_BYTES)
        note = ""
        if kind == "fast":
            reason = reason_against(model, optimizer, precision)
            note = f"ran the eager step: {reason}" if reason else ""
        if compiled:
            torch._dynamo.reset()
            forward = torch.compile(model)
            assert isinstance(forward, nn.Module)
            step: Step = EagerStep(
                forward, optimizer, reducer, precision, schedule, config.label_smoothing
            )
        else:
            step = build_step(
                kind, model, optimizer, reducer, precision, schedule, config.label_smoothing,
                total_steps=options.warmup + options.repeats + 8,
                growth_interval=config.loss_scale_growth_interval, world_size=1,
                say=lambda _line: None,
            )  # fmt: skip
        return lambda: step([batch]), note, reducer.close

    return build


def _usual_script(
    options: StepOptions, config: Configuration, batch: MicroBatch
) -> tuple[Call, str, Call]:
    """What torchvision's reference script does: NCHW, GradScaler, torch's SGD."""
    model, precision, _ = step_parts(options, config, torch.contiguous_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(options.device, enabled=options.precision == "fp16")
    images, labels = batch[0].contiguous(), batch[1]

    def call() -> Tensor:
        with precision.autocast():
            loss = functional.cross_entropy(
                model(images), labels, label_smoothing=config.label_smoothing
            )
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return call, "", lambda: None


_BUILDERS: dict[str, Callable[..., tuple[Call, str, Call]]] = {
    "eager-nchw": _usual_script,
    "eager": _own_step("eager", False),
    "compile": _own_step("eager", True),
    "fast": _own_step("fast", False),
}


def _measure_update(options: StepOptions, config: Configuration) -> float | None:
    """Seconds of the fused update alone; None where the fast step cannot run."""
    model, precision, schedule = step_parts(options, config, torch.channels_last)
    optimizer = build_optimizer(model, config)
    if reason_against(model, optimizer, precision) is not None:
        return None
    from fourmin.training.fast.step import FastStep

    reducer = GradientReducer(model.named_parameters(), NativeAllReduce(1), 1, FUSION_BYTES)
    step = FastStep(
        model, optimizer, reducer, precision, schedule, config.label_smoothing,
        total_steps=64, growth_interval=config.loss_scale_growth_interval, world_size=1,
    )  # fmt: skip
    try:
        return _best(step.update_parameters, precision.device)
    finally:
        reducer.close()


def hardware_name(device: torch.device) -> str:
    """The GPU, or the processor and how many of it this process may use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    found = processor()
    return f"{found['model']}, {len(os.sched_getaffinity(0))} processors"
