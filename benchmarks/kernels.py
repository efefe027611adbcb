"""The fast step's kernels beside their bounds: `python benchmarks/kernels.py [--preset NAME]`.

Counts what each kind of kernel must read, write and compute in a step, by running the step's own
code on two images with its launches noted and not made; times the kernels of captured steps with
torch.profiler on one GPU; and measures a copy and a matrix product there. A kind's bound is the
sum over its launches of the longer of their bytes at the speed of the copy and their operations at
that of the product. The sum of all is the floor of this decomposition into kernels; the last line
says how near the step is.

`--profile FILE` reads times from a file of lines `<ms> ms <launches>x  <kernel>` instead of a GPU,
with `--copy` (bytes/s) and `--matrix` (FLOP/s) beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import torch
import triton

from fourmin.bench import step as bench
from fourmin.recipe.presets import load_preset
from fourmin.ruleset import load_ruleset
from fourmin.training.fast import convolution
from fourmin.training.fast.alexnet import FusedAlexNet
from fourmin.training.fast.graphs import at_once
from fourmin.training.fast.kernels import batchnorm, folding, max_pooling, pointwise, stem
from fourmin.training.fast.plan import FusionPlan
from fourmin.training.fast.resnet import FusedResNet
from fourmin.training.fast.workspace import Workspace
from fourmin.training.models import build_model

COUNTED = 2  # images
CONVOLUTIONS = "convolutions by cuDNN, with statistics"
KINDS = {
    "gradient_relu|gradient_two": "normalization, backward",
    "apply_relu": "normalization and ReLU, forward",
    "apply_block_end": "end of a block, forward",
    "reduce_block_end": "end of a block, sums backward",
    "reduce_relu": "sums of normalization, backward",
    "^statistics": "sums of normalization, forward",
    "gradient_to_block_end|backward_through_block_end": "1x1 convolutions with both, backward",
    "^forward_statistics": "convolutions by Triton, with statistics",
    "apply_pool|gradient_pool": "pooling",
    "^fold": "folding of the images",
    "finalize|add_parts": "statistics from sums",
    "^update|^norms|^rates|^advance": "update",
    r"wgrad|dgrad|fprop|convFwd|convBwd|nvjet|Implicit|tensorop|splitK": CONVOLUTIONS,
}


def kind_of(kernel: str) -> str:
    """The kind of a kernel, by its name; `rest` for what is none of them."""
    return next((kind for names, kind in KINDS.items() if re.search(names, kernel)), "rest")


class Count:
    """Bytes read and written, and floating-point operations, of each launch by kind."""

    def __init__(self, times: float) -> None:
        """`times` as many images as are counted."""
        self._times = times
        self.launches: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def add(
        self, kind: str, activations: tuple[torch.Tensor, ...], operations: float = 0.0,
        weight: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        moved = self._times * sum(t.numel() * t.element_size() for t in activations)
        if weight is not None:
            moved += weight.numel() * weight.element_size()
        self.launches[kind].append((moved, self._times * operations))

    def total(self, kind: str) -> tuple[float, float]:
        """(bytes, operations) of all launches of a kind."""
        launches = self.launches.get(kind, [])
        return sum(moved for moved, _ in launches), sum(done for _, done in launches)

    def bound(self, kind: str, copy: float, matrix: float) -> float:
        """Seconds, at `copy` bytes/s and `matrix` FLOP/s."""
        return sum(max(moved / copy, done / matrix) for moved, done in self.launches.get(kind, []))


class Noted:
    """A kernel whose launches are counted: its activations, and the products that are in it."""

    def __init__(self, kernel: Any, count: Count) -> None:
        self._kernel, self._count = kernel, count

    def __getitem__(self, _grid: object) -> Any:
        return self._launch

    def _launch(self, *given: Any, **named: Any) -> None:
        name = self._kernel.__name__
        values = dict(zip(self._kernel.arg_names, given, strict=False)) | named
        # One that is given twice is touched once; bits have two dimensions, all else that is
        # large four. Of partial sums, statistics and weights there are few bytes.
        held = {t.data_ptr(): t for t in given if isinstance(t, torch.Tensor) and t.ndim in (2, 4)}
        large = tuple(t for t in held.values() if t.ndim == 4 or t.dtype == torch.uint8)
        products = 0.0
        if name == "forward_statistics":
            products = 2.0 * values["y"].numel() * values["w"].numel() / values["y"].shape[1]
        elif name == "gradient_to_block_end":
            products = 2.0 * values["g_out"].numel() * values["w"].shape[0]
        elif name == "backward_through_block_end":
            products = 4.0 * values["dy"].numel() * values["w"].shape[0]
        self._count.add(kind_of(name), large, products)


@contextmanager
def counting(count: Count, epilogue: bool) -> Iterator[None]:
    """Launches and convolutions are counted; convolutions give memory that nobody filled.

    `epilogue`: cuDNN takes the statistics of its convolutions, as it does in FP16 alone.
    """

    def product(y: torch.Tensor, w: torch.Tensor) -> float:
        return 2.0 * y.numel() * w.numel() / w.shape[0]

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.ops.aten.convolution(
            x.to("meta"), self.weight.to("meta"), None, self.stride, self.padding, [1, 1], False,
            [0, 0], 1,
        )  # fmt: skip
        made = torch.empty(y.shape, dtype=x.dtype).to(memory_format=torch.channels_last)
        count.add(CONVOLUTIONS, (x, made), product(made, self.weight), self.weight)
        return made

    def backward(self: Any, dy: torch.Tensor, x: torch.Tensor, data: bool) -> torch.Tensor:
        made = torch.empty_like(x if data else self.weight)
        count.add(CONVOLUTIONS, (dy, x), product(dy, self.weight), self.weight)
        return made

    def with_statistics(
        _self: Any, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, *_others: object
    ) -> Any:
        if not epilogue:
            return None
        counted = Mock(side_effect=lambda *_: count.add(CONVOLUTIONS, (x, y), product(y, w), w))
        counted.scratch = 0
        return counted

    with (
        patch.object(convolution.FusedConvolution, "forward", forward),
        patch.object(convolution.FusedConvolution, "_backward", backward),
        patch.object(Workspace, "statistics_convolution", with_statistics),
    ):
        kept = []
        for module in (batchnorm, folding, max_pooling, pointwise, stem):
            for name, kernel in list(vars(module).items()):
                if isinstance(kernel, triton.JITFunction) and not name.startswith("_"):
                    kept.append((module, name, kernel))
                    setattr(module, name, Noted(kernel, count))
        try:
            yield
        finally:
            for module, name, kernel in kept:
                setattr(module, name, kernel)


class Forgotten:
    """A sink that keeps nothing."""

    def weight(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take a gradient."""

    def written(self, *parameters: torch.Tensor) -> None:
        """Take note of gradients."""


def count_step(preset: str, batch: int, precision: str) -> Count:
    """What a step of `batch` images reads, writes and computes."""
    config = load_preset(preset)
    classes = int(load_ruleset().benchmark(config.benchmark).dataset["classes"])
    model = build_model(config.model, num_classes=classes, bn_momentum=0.1, bn_epsilon=1e-5)
    model = model.to(memory_format=torch.channels_last)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    halves = {p: p.detach().to(half) for p in model.parameters() if p.ndim > 1}
    fused = (FusedAlexNet if config.model == "alexnet" else FusedResNet)(
        model, halves, FusionPlan()
    )
    size = config.image_size
    images = torch.zeros(COUNTED, 3, size, size).to(memory_format=torch.channels_last)
    found = Count(batch / COUNTED)
    with torch.no_grad(), counting(found, precision == "fp16"):
        buffer = fused.input_buffer(images)
        fused.stem.fill(buffer, images)
        fused.loss_and_gradients(
            buffer, torch.Tensor.sum, torch.ones(()), Forgotten(), at_once, accumulate=False
        )
    # FP32: weights, gradients and momenta read, the first and the last written; weights and
    # gradients once more for the norms. The half-precision copy is written.
    parameters = sum(p.numel() for p in model.parameters())
    found.launches["update"] = [(parameters * (4 * 7 + 2), 0.0)]
    return found


def measured(preset: str, batch: int, precision: str) -> tuple[dict[str, float], float]:
    """(milliseconds of a step by kind, of a captured step) on this GPU."""
    from torch.profiler import ProfilerActivity, profile

    config = dataclasses.replace(load_preset(preset), device="cuda", precision=precision)
    classes = int(load_ruleset().benchmark(config.benchmark).dataset["classes"])
    size, steps, device = config.image_size, 5, torch.device("cuda")
    images = torch.randn(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (batch,), device=device)
    found: dict[str, float] = defaultdict(float)
    with bench.ready_step("fast", config, classes, 200) as (step, note):
        if note:
            raise SystemExit(note)
        for _ in range(20):
            step([(images, labels)])
        events = [torch.cuda.Event(enable_timing=True) for _ in range(31)]
        for event in events:
            event.record()
            step([(images, labels)])
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in itertools.pairwise(events)]
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(steps):
                step([(images, labels)])
            torch.cuda.synchronize()
        for one in profiler.key_averages():
            found[kind_of(one.key)] += one.self_device_time_total / 1e3 / steps
    return found, statistics.median(times)


def read_profile(path: Path) -> tuple[dict[str, float], float]:
    """As `measured`, from a file; the step's time is that of its kernels."""
    found: dict[str, float] = defaultdict(float)
    for line in path.read_text().splitlines():
        row = re.match(r"\s*([\d.]+) ms\s+[\d.]+x\s+(.*)", line)
        if row:
            found[kind_of(row[2])] += float(row[1])
    return found, sum(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--preset", default="resnet50-64k")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", choices=("fp16", "bf16"), default="fp16")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--copy", type=float, help="bytes/s, read and written")
    parser.add_argument("--matrix", type=float, help="FLOP/s")
    options = parser.parse_args()
    count = count_step(options.preset, options.batch, options.precision)
    if options.profile:
        if not options.copy or not options.matrix:
            parser.error("--profile needs --copy and --matrix")
        times, whole = read_profile(options.profile)
    else:
        bench.cuda_gpus("cuda")
        bench.set_backends(4)
        ceilings = bench._ceilings(torch.device("cuda"), options.precision)
        options.copy = ceilings.copy_bytes_per_second
        options.matrix = ceilings.matrix_product_flops
        times, whole = measured(options.preset, options.batch, options.precision)
    print(f"{options.preset}, {options.precision}, {options.batch} images; copy "
          f"{options.copy / 1e12:.2f} TB/s, matrix product {options.matrix / 1e12:.0f} TFLOP/s\n\n"
          "| kind of kernel | GB | TFLOP | bound, ms | measured, ms | bound of measured |\n"
          "|---|---|---|---|---|---|")  # fmt: skip
    floor = 0.0
    for kind in sorted(times, key=lambda name: -times[name]):
        moved, computed = count.total(kind)
        bound = 1e3 * count.bound(kind, options.copy, options.matrix)
        floor += bound
        near = f"{bound / times[kind]:.0%}" if bound else ""
        print(f"| {kind} | {moved / 1e9:.2f} | {computed / 1e12:.2f} | {bound:.2f} | "
              f"{times[kind]:.2f} | {near} |")  # fmt: skip
    print(f"\nfloor {floor:.2f} ms, kernels {sum(times.values()):.2f} ms, step {whole:.2f} ms: "
          f"{floor / whole:.0%} of the step is the floor")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
