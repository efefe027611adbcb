"""docs/ablation.md and docs/ablation.svg, from what `ablation.py` kept.

python benchmarks/ablation_page.py RESULTS.json [ANOTHER ...]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ablation import BASELINE, ROOT, USUAL_VARIANTS, VARIANTS, key_of, outcome, usual_rates

from fourmin.recipe.presets import load_preset
from fourmin.report.charts.files import vl_convert
from fourmin.report.charts.specs import SCHEMA
from fourmin.report.charts.theme import PAPER, config
from fourmin.ruleset import load_ruleset

NAMES = {
    BASELINE: "the preset",
    "sgd": "momentum SGD",
    "sgd-excluded": "momentum SGD, no decay on bias and BN",
    "lars": "LARS",
    "lars-excluded": "LARS, no decay on bias and BN",
}
VARIED = {
    "optimizer", "nesterov", "exclude_bias_and_bn", "base_learning_rate", "global_batch_size",
    "gradient_accumulation_steps",
}  # fmt: skip
OF_THE_MACHINE = {"device", "precision", "decoder", "procs_per_node"}

PAGE = """\
# The paper's ablation in small

<!-- written by `python benchmarks/ablation_page.py {files}` -->

Jia et al. 2018 (arXiv 1807.11205) train ResNet-50 on ImageNet at batch 65,536. LARS lifts them
from 60.6% to 71.9%; without weight decay on biases and batch normalization they meet the 75.3% of
batch 256. Here is the same on the preset `{preset}` ({images:,} images), at batch {batches} instead
of its {own_batch:,}: {epochs} epochs of {steps} steps.

![Accuracy by epoch, a line a variant at its best rate, a panel a batch](ablation.svg)

{best}

{said}

## What was run

On {machine}, {workers} a run, fourmin {version}, {precision} with the {step} step: {runs} runs,
{seeds} of each rate. Variants share their seeds, so that they start from the same weights. The
command was `python benchmarks/ablation.py --preset {preset}{options}`; the accuracies after
every epoch are in {links}.

- **{sgd}**: plain momentum, weight decay on every parameter.
- **{lars}**: the same with LARS, trust ratio and decay on every parameter.{gammas}
- **{excluded}**: neither on biases and batch normalization, as in every preset.

Everything else is the preset's or the same for all: {epochs} epochs, {warmup:g} of warm-up from 0,
polynomial decay of power {power:g}, weight decay {decay:g}, label smoothing {smoothing:g}. A large
batch is accumulated over passes of {own_batch:,} images, so that batch statistics are over as many
images at every batch. The preset itself has {preset_optimizer}. No run stops at the benchmark's
target: what is compared is the accuracy after the last epoch.

Each variant has its own grid of base learning rates{grid}. What a variant is judged by is its best
rate, by the median of the last accuracies; a run that diverged counts as 0. All rates that were
run:

{all}
"""

USUAL_GRID = """: SGD's are the preset's rate times the batch's ratio to the powers 1 (linear
scaling), 0.5 and 0.75; LARS's (eta 0.001) are 10 at batch 4,096, which is MLPerf's reference point
for ResNet-50 there, times the square root of the batch's ratio, and half and twice that"""

ZERO_GAMMAS = """ The last gamma of each block starts at 0: once it has left that, a trust ratio
lets it change by a share of its own size only, which is a drawback of this variant here."""


@dataclass(frozen=True)
class Point:
    """A variant at a batch and a rate: its runs, by seed."""

    variant: str
    batch: int
    rate: float
    runs: tuple[dict[str, Any], ...]

    @cached_property
    def score(self) -> float:
        """The median of the last accuracies; a run that diverged counts as 0."""
        return statistics.median(_last(run) for run in self.runs)

    @property
    def spread(self) -> float:
        """The best last accuracy less the worst."""
        last = [_last(run) for run in self.runs]
        return max(last) - min(last)

    def by_epoch(self) -> list[tuple[int, float]]:
        """The median accuracy after each epoch that every run came to."""
        epochs = set.intersection(*({int(e) for e in run["accuracy"]} for run in self.runs))
        return [
            (epoch, statistics.median(run["accuracy"][str(epoch)] for run in self.runs))
            for epoch in sorted(epochs)
        ]


def _last(run: dict[str, Any]) -> float:
    return 0.0 if run["diverged"] else list(run["accuracy"].values())[-1]


def merged(files: Sequence[Path]) -> tuple[str, str, list[dict[str, Any]]]:
    """Preset, version and runs of several files; a run that several hold is taken once.

    Exits where they are of different presets or versions, or where runs differ in anything
    but what is varied.
    """
    documents = [json.loads(path.read_bytes()) for path in files]
    if len({(one["preset"], one["fourmin"]) for one in documents}) != 1:
        sys.exit("these files are of different presets or versions")
    runs = list({key_of(run): run for one in reversed(documents) for run in one["runs"]}.values())
    first = runs[0]["configuration"]
    for run in runs:
        other = {k for k, v in run["configuration"].items() if v != first[k]} - VARIED
        if other:
            sys.exit(f"{key_of(run)} and {key_of(runs[0])} differ in {', '.join(sorted(other))}")
    return documents[0]["preset"], documents[0]["fourmin"], runs


def points_of(runs: Sequence[dict[str, Any]]) -> list[Point]:
    """The points of the grid: by batch, then as the variants are listed, then by rate."""
    grouped: dict[tuple[int, str, float], list[dict[str, Any]]] = {}
    for run in sorted(runs, key=lambda run: run["seed"]):
        place = (run["global_batch_size"], run["variant"], run["base_learning_rate"])
        grouped.setdefault(place, []).append(run)
    order = [BASELINE, *VARIANTS]
    return [
        Point(variant, batch, rate, tuple(grouped[batch, variant, rate]))
        for batch, variant, rate in sorted(grouped, key=lambda p: (p[0], order.index(p[1]), p[2]))
    ]


def best_points(points: Sequence[Point]) -> list[Point]:
    """The best rate of each variant at each batch; of equals the lowest."""
    best: dict[tuple[int, str], Point] = {}
    for point in points:
        place = (point.batch, point.variant)
        if place not in best or point.score > best[place].score:
            best[place] = point
    return list(best.values())


def best_table(points: Sequence[Point]) -> str:
    """The variants at their best rates, with what each has over momentum SGD."""
    lines = [
        "| batch | variant | best rate | of | last accuracy | over SGD |",
        "|---|---|---|---|---|---|",
    ]
    best = best_points(points)
    scores = {(point.batch, point.variant): point.score for point in best}
    for point in best:
        sgd = scores.get((point.batch, "sgd"))
        over = "-" if sgd is None or point.variant == "sgd" else f"{100 * (point.score - sgd):+.1f}"
        grid = ", ".join(f"{rate:g}" for rate in _grid(point, points))
        lines.append(
            f"| {point.batch:,} | {NAMES[point.variant]} | {point.rate:g} | {grid} | "
            f"{point.score:.1%} | {over} |"
        )
    return "\n".join(lines)


def all_table(points: Sequence[Point]) -> str:
    """Every run of every rate."""
    lines = ["| batch | variant | rate | last accuracy of each run |", "|---|---|---|---|"]
    lines += [
        f"| {point.batch:,} | {NAMES[point.variant]} | {point.rate:g} | "
        f"{', '.join(map(outcome, point.runs))} |"
        for point in points
    ]
    return "\n".join(lines)


def conclusions(points: Sequence[Point]) -> str:
    """What the runs say and do not say, in words that follow from them."""
    best = best_points(points)
    said = []
    for batch in _compared(best):
        scores = {point.variant: point.score for point in best if point.batch == batch}
        sgd, lars, excluded = (scores[name] for name in USUAL_VARIANTS)
        holds = "is" if sgd < lars < excluded else "is not"
        said.append(
            f"- At batch {batch:,} LARS has {100 * (lars - sgd):+.1f} points over momentum SGD, "
            f"and no decay on bias and BN a further {100 * (excluded - lars):+.1f}: the paper's "
            f"order {holds} what was found."
        )
    spread = max(point.spread for point in best)
    if max(len(point.runs) for point in best) > 1:
        said.append(
            f"- Between seeds the last accuracy of one variant at its best rate differed by up to "
            f"{100 * spread:.1f} points."
        )
    else:
        said.append("- With one seed nothing here says how much of a difference is the seed's.")
    edge = [
        f"{NAMES[point.variant]} at {point.batch:,}"
        for point in best
        if point.variant != BASELINE
        and point.rate in (_grid(point, points)[0], _grid(point, points)[-1])
    ]
    if edge:
        said.append(
            f"- The best rate lies at the edge of its grid for {', '.join(edge)}: another might do "
            "better there."
        )
    return "\n".join(said)


def _grid(point: Point, points: Sequence[Point]) -> list[float]:
    return [p.rate for p in points if (p.batch, p.variant) == (point.batch, point.variant)]


def _compared(best: Sequence[Point]) -> list[int]:
    """The batches at which all three variants were run."""
    found: dict[int, set[str]] = {}
    for point in best:
        found.setdefault(point.batch, set()).add(point.variant)
    return sorted(batch for batch, names in found.items() if set(USUAL_VARIANTS) <= names)


def chart(points: Sequence[Point]) -> bytes:
    """The chart as SVG: a panel a batch, a line a variant at its best rate, the preset dashed."""
    best = best_points(points)
    names = [NAMES[name] for name in NAMES if any(point.variant == name for point in best)]
    palette = dict(zip([n for n in NAMES if n != BASELINE], PAPER.runs, strict=False))
    colours = {NAMES[BASELINE]: PAPER.quiet, **{NAMES[n]: c for n, c in palette.items()}}
    top = max(accuracy for point in best for _, accuracy in point.by_epoch() or [(0, 0.0)])
    last = max(epoch for point in best for epoch, _ in point.by_epoch() or [(1, 0.0)])
    is_baseline = f"datum.variant === '{NAMES[BASELINE]}'"
    panels = []
    for batch in _compared(best):
        rows = [
            {"variant": NAMES[point.variant], "epoch": epoch, "accuracy": accuracy}
            for point in best
            if point.batch == batch or point.variant == BASELINE
            for epoch, accuracy in point.by_epoch()
        ]
        panels.append({
            "title": {"text": f"batch {batch:,}", "frame": "group"},
            "width": 300,
            "height": 260,
            "data": {"values": rows},
            "mark": {"type": "line", "strokeWidth": 2, "point": {"filled": True, "size": 24}},
            "encoding": {
                "x": {
                    "field": "epoch",
                    "type": "quantitative",
                    "scale": {"domain": [0, last]},
                    "axis": {"title": "epoch", "tickCount": 5, "grid": False},
                },
                "y": {
                    "field": "accuracy",
                    "type": "quantitative",
                    "scale": {"domain": [0, top], "zero": True, "nice": True},
                    "axis": {"title": "accuracy", "format": ".0%", "tickCount": 6},
                },
                "color": {
                    "field": "variant",
                    "type": "nominal",
                    "scale": {"domain": names, "range": [colours[name] for name in names]},
                    "legend": {"title": None, "orient": "top", "labelLimit": 400, "columns": 2},
                },
                "strokeDash": {
                    "condition": {"test": is_baseline, "value": [5, 4]},
                    "value": [1, 0],
                },
            },
        })  # fmt: skip
    heading = "Accuracy by epoch at a large batch, each variant at its best rate"
    specification = {
        "$schema": SCHEMA,
        "config": config(PAPER),
        "title": {"text": heading, "fontSize": 16},
        "description": heading,
        "hconcat": panels,
        "spacing": 28,
    }
    drawn: str = vl_convert().vegalite_to_svg(specification)
    return drawn.encode() + b"\n"


def page(files: Sequence[Path]) -> str:
    preset_name, version, runs = merged(files)
    points = points_of(runs)
    preset = load_preset(preset_name)
    configuration = runs[0]["configuration"]
    batches = sorted({point.batch for point in points if point.variant != BASELINE})
    images = load_ruleset().benchmark(preset.benchmark).train_samples
    changed = {
        name: value
        for name, value in configuration.items()
        if name not in VARIED | OF_THE_MACHINE and value != preset.to_json()[name]
    }
    workers = configuration["nodes"] * configuration["procs_per_node"]
    seeds = sorted({len(point.runs) for point in points})
    usual = all(
        point.variant == BASELINE or point.rate in usual_rates(point.variant, point.batch, preset)
        for point in points
    )
    text = PAGE.format(
        files=" ".join(f"benchmarks/results/{path.name}" for path in files),
        links=", ".join(f"[{path.name}](../benchmarks/results/{path.name})" for path in files),
        preset=preset_name,
        images=images,
        batches=_listed([f"{batch:,}" for batch in batches]),
        own_batch=preset.global_batch_size,
        epochs=configuration["max_epochs"],
        steps=_listed([str(images // batch) for batch in batches]),
        best=best_table(points),
        said=conclusions(points),
        machine=_listed(sorted({run["machine"] for run in runs})),
        version=version,
        workers="one worker" if workers == 1 else f"{workers} workers",
        runs=len(runs),
        seeds=" or ".join(map(str, seeds)),
        options="".join(f" --set {name}={value}" for name, value in changed.items()),
        precision=configuration["precision"].upper(),
        step=configuration["step"],
        grid=USUAL_GRID if usual else "",
        sgd=NAMES["sgd"],
        lars=NAMES["lars"],
        excluded=NAMES["lars-excluded"],
        gammas=ZERO_GAMMAS if configuration["zero_last_gamma"] else "",
        warmup=configuration["warmup_epochs"],
        power=configuration["decay_poly_power"],
        decay=configuration["weight_decay"],
        smoothing=configuration["label_smoothing"],
        preset_optimizer=f"{preset.optimizer.upper()} at {preset.base_learning_rate:g}"
        + (" with Nesterov momentum" if preset.nesterov else "")
        + (
            ", without decay on biases and batch normalization"
            if preset.exclude_bias_and_bn
            else ""
        ),
        all=all_table(points),
    )
    return "\n\n".join(map(_wrapped, text.strip().split("\n\n"))) + "\n"


def write(files: Sequence[Path], folder: Path) -> list[Path]:
    """Write page and chart into `folder`; returns their paths."""
    text, drawn = page(files), chart(points_of(merged(files)[2]))
    paths = [folder / "ablation.md", folder / "ablation.svg"]
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in zip(paths, (text.encode(), drawn), strict=True):
        path.write_bytes(content)
    return paths


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _wrapped(block: str) -> str:
    """A paragraph, or each item of a list, in lines of at most 100 characters."""
    if block.startswith(("|", "#", "<", "!")):
        return block
    return "\n".join(
        textwrap.fill(
            " ".join(item.split()),
            100,
            subsequent_indent="  " if item.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for item in re.split(r"\n(?=- )", block)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="write docs/ablation.md and docs/ablation.svg")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    for path in write(options.results, options.docs):
        print(f"wrote {path}")
