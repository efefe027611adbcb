"""What `fourmin bench data` measured, as data: made by the training wing, read by reports."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

STAGES = {
    "read": "the files' bytes, in the order of an epoch; after the first pass from the page cache",
    "decode": "bytes in memory to whole RGB images",
    "pipeline": "all that a loader does: read, decode, cut, scale, normalise, onto the device",
    "synthetic": "the training step on images that are on the device already",
    "fed": "the same step on what the loader gives",
}
"""What is measured, in this order."""


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
    """All that one call measured."""

    options: DataOptions
    hardware: str
    software: str
    results: list[DataResult] = field(default_factory=list)

    def rate(self, stage: str) -> float | None:
        """Images/s of the first result of a stage."""
        found = (one.images_per_second for one in self.results if one.stage == stage)
        return next(found, None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, every window included."""
        synthetic = self.rate("synthetic")
        return {
            "schema": "fourmin-bench-data-1",
            "hardware": self.hardware,
            "software": self.software,
            **{name: value for name, value in self.options.__dict__.items() if name != "loaders"},
            "results": [
                {
                    "stage": one.stage,
                    "loader": one.loader or None,
                    "decoded_cache": one.decoded_cache,
                    "images_per_second": one.images_per_second,
                    "of_synthetic": _share(one, synthetic),
                    "megabytes_per_second": one.megabytes_per_second,
                    "windows": list(one.rates),
                    "note": one.note,
                }
                for one in self.results
            ],
        }

    def to_text(self) -> str:
        """A table, and what its rows mean."""
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
        ]
        synthetic = self.rate("synthetic")
        for one in self.results:
            start = f"{one.stage:<12}{one.contender:<21}"
            rate = one.images_per_second
            if rate is None:
                lines.append(f"{start}  {one.note}")
                continue
            volume = one.megabytes_per_second
            share = _share(one, synthetic)
            lines.append(
                f"{start}{rate:>11,.0f}"
                + (f"{volume:>9,.0f}" if volume is not None else f"{'':>9}")
                + (f"{share:>14.2f}" if share is not None else "")
                + (f"  {one.note}" if one.note else "")
            )
        lines += ["", *(f"{name}: {meaning}" for name, meaning in STAGES.items())]
        if options.decoded_cache:
            lines.append(
                f"cached: with up to {options.decoded_cache} MiB of decoded images, kept from an "
                "epoch before that is not timed"
            )
        return "\n".join(lines) + "\n"


def _share(one: DataResult, synthetic: float | None) -> float | None:
    """What training fed by a loader reaches of training on synthetic images."""
    rate = one.images_per_second
    return rate / synthetic if one.stage == "fed" and rate and synthetic else None
