"""What `fourmin bench step` measured, as data: made by the training wing, read by reports."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

SCHEMA = "fourmin-bench-step-1"
"""What the report's JSON says it is."""

PEERS: dict[str, str] = {
    "eager-nchw": "autocast, NCHW, torch.optim.SGD: the usual training script",
    "eager": "autocast, channels-last: --set step=eager",
    "compile": "the eager step around torch.compile(model)",
    "fast": "fused kernels and CUDA graphs: --set step=fast",
}
"""The steps that can be compared, and what each is."""

BUSY_ELSEWHERE = 0.8
"""Least ratio of processor time to wall time times threads of a CPU measurement worth printing."""


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


@dataclass(frozen=True)
class Ceilings:
    """What the machine can do at most, measured: FLOP/s of a matrix product, bytes/s of a copy."""

    matrix_flops: float
    matrix_type: str
    matrix_size: int
    copy_bytes: float


@dataclass(frozen=True)
class PeerResult:
    """One peer at one batch size: every step's time in seconds, or why there is none."""

    peer: str
    batch_size: int
    seconds: tuple[float, ...] = ()
    busy_ratio: float | None = None
    note: str = ""

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
    """All that one call measured."""

    options: StepOptions
    hardware: str
    software: str
    ceilings: Ceilings
    flops_per_image: float
    """Floating-point operations of a training step (three forward passes) for each image."""
    update_seconds: float | None = None
    results: list[PeerResult] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, every raw time included."""
        options, ceilings = self.options, self.ceilings
        return {
            "schema": SCHEMA,
            "hardware": self.hardware,
            "software": self.software,
            "model": options.model,
            "device": options.device,
            "precision": options.precision,
            "image_size": options.image_size,
            "threads": options.threads,
            "ceilings": {
                "matrix_product_flops": ceilings.matrix_flops,
                "matrix_product_type": ceilings.matrix_type,
                "matrix_product_size": ceilings.matrix_size,
                "copy_bytes_per_second": ceilings.copy_bytes,
            },
            "flops_per_image": self.flops_per_image,
            "update_seconds": self.update_seconds,
            "results": [
                {
                    "peer": result.peer,
                    "batch_size": result.batch_size,
                    "images_per_second": result.images_per_second,
                    "seconds": list(result.seconds),
                    "busy_ratio": result.busy_ratio,
                    "note": result.note,
                }
                for result in self.results
            ],
        }

    def to_text(self) -> str:
        """A table, with what the figures are relative to."""
        options, ceilings = self.options, self.ceilings
        lines = [
            f"{options.model}, {options.precision}, {options.image_size}x{options.image_size}, "
            f"synthetic images on the {options.device}; median of {options.repeats} steps",
            f"{self.hardware}; {self.software}",
            f"ceilings measured here: matrix product of {ceilings.matrix_size} "
            f"({ceilings.matrix_type}) {_scaled(ceilings.matrix_flops)}FLOP/s, "
            f"copy {_scaled(ceilings.copy_bytes)}B/s read and written",
            "",
            f"{'step':<12}{'batch':>7}{'images/s':>11}{'ms':>10}{'of matrix':>11}{'of eager':>10}",
        ]
        for result in self.results:
            lines.append(self._line(result))
        if self.update_seconds is not None:
            lines += ["", f"update of all parameters alone: {self.update_seconds * 1e3:.3f} ms"]
        lines += ["", *(f"{name}: {PEERS[name]}" for name in options.peers)]
        return "\n".join(lines) + "\n"

    def _line(self, result: PeerResult) -> str:
        start = f"{result.peer:<12}{result.batch_size:>7}"
        rate = result.images_per_second
        if rate is None:
            note = result.note
            if result.disturbed:
                note = (
                    f"not reported: the process got {result.busy_ratio:.0%} of its processors, "
                    "something else was running"
                )
            return f"{start}  {note}"
        share = rate * self.flops_per_image / self.ceilings.matrix_flops
        base = next(
            (
                other.images_per_second
                for other in self.results
                if other.peer == "eager" and other.batch_size == result.batch_size
            ),
            None,
        )
        ratio = f"{rate / base:>9.2f}x" if base else f"{'':>10}"
        note = f"  {result.note}" if result.note else ""
        milliseconds = statistics.median(result.seconds) * 1e3
        return f"{start}{rate:>11,.0f}{milliseconds:>10.2f}{share:>11.1%}{ratio}{note}"


def _scaled(value: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}"
    return f"{value:.4g} "
