"""The paper's ablation in small: a large batch without LARS, with it, and without decay on some.

    python benchmarks/ablation.py --data-dir DIR [--part 1/2] [--time-budget SECONDS] [...]

It makes practice runs of a preset at large global batches, each variant with its own grid of
base learning rates, and writes the accuracies by epoch after every run; what the output file holds
already is not run again. `ablation_page.py` makes docs/ablation.md and its chart of such files.

Everything but the variant, the batch and the rate is the preset's. A large batch is accumulated
over passes of the preset's batch, so that batch statistics are over as many images as there. Every
run goes through `fourmin run --practice` of a copy of the package whose benchmark has the target
1: with its own, a run would stop where it first reached it, and the last accuracies could not be
compared.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from practice import (
    abort_reason,
    accuracies,
    as_options,
    event_logs,
    keep,
    kept_in,
    machine_of,
    practice,
)

from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.ruleset import CURRENT

ROOT = Path(__file__).resolve().parents[1]
FIRST_SEED = 1807
BASELINE = "baseline"

VARIANTS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "exclude_bias_and_bn": False},
    "lars": {"optimizer": "lars", "exclude_bias_and_bn": False},
    "lars-excluded": {"optimizer": "lars", "exclude_bias_and_bn": True},
    "sgd-excluded": {"optimizer": "sgd", "exclude_bias_and_bn": True},
}
"""What each variant sets, beside plain momentum, which is all that LARS has here."""
USUAL_VARIANTS = ("sgd", "lars", "lars-excluded")

SGD_POWERS = (1.0, 0.5, 0.75)
"""SGD's rates: the preset's times (batch / its batch) to these powers; 1 and 0.5 are usual."""
LARS_FACTORS = (1.0, 0.5, 2.0)
LARS_RATE, LARS_BATCH = 10.0, 4096
"""LARS's rates: these factors times that of MLPerf's reference point for ResNet-50 at batch 4,096,
times the square root of (batch / 4,096). Eta is 0.001 in both."""


@dataclass(frozen=True)
class Run:
    """One run of the grid."""

    variant: str
    global_batch_size: int
    base_learning_rate: float
    seed: int


def usual_rates(variant: str, batch: int, preset: Configuration) -> list[float]:
    """The grid of a variant at a batch, the most promising first, to three digits.

    Empty for SGD where the preset has another optimizer, and so no rate to scale.
    """
    if VARIANTS[variant]["optimizer"] == "lars":
        rates = [f * LARS_RATE * (batch / LARS_BATCH) ** 0.5 for f in LARS_FACTORS]
    else:
        share = batch / preset.global_batch_size
        powers = SGD_POWERS if preset.optimizer == "sgd" else ()
        rates = [preset.base_learning_rate * share**power for power in powers]
    return [float(f"{rate:.3g}") for rate in rates]


def planned(
    preset: Configuration,
    batches: Sequence[int],
    variants: Sequence[str],
    runs: int,
    given: Mapping[str, Sequence[float]],
) -> list[Run]:
    """Every run of the grid, the most informative first.

    Of each batch the first two rates of all variants, the baseline after the first batch; then the
    other rates; then all that again with the next seed.
    """
    order = []
    for seed in range(FIRST_SEED, FIRST_SEED + runs):
        early, late = [], []
        for batch in batches:
            grid = {name: given.get(name) or usual_rates(name, batch, preset) for name in variants}
            if not all(grid.values()):
                sys.exit(f"{preset.preset} has no rate for SGD: give --learning-rates sgd=RATE,...")
            for index in range(max(map(len, grid.values()))):
                (early if index < 2 else late).extend(
                    Run(name, batch, rates[index], seed)
                    for name, rates in grid.items()
                    if index < len(rates)
                )
            if batch == batches[0]:
                rate = preset.base_learning_rate
                early.append(Run(BASELINE, preset.global_batch_size, rate, seed))
        order += early + late
    return order


def settings_of(run: Run, preset: Configuration) -> dict[str, Any]:
    """The fields that a run sets; none for the baseline."""
    if run.variant == BASELINE:
        return {}
    passes, rest = divmod(run.global_batch_size, preset.global_batch_size)
    if rest or not passes:
        sys.exit(f"--batches: {run.global_batch_size} is no multiple of {preset.global_batch_size}")
    return {
        **VARIANTS[run.variant],
        "nesterov": False,
        "global_batch_size": run.global_batch_size,
        "gradient_accumulation_steps": passes,
        "base_learning_rate": run.base_learning_rate,
    }


def without_target(folder: Path, benchmark: str) -> Path:
    """Copy the package into `folder` with a target that ends no run early; returns `folder`."""
    for name in ("fourmin", "rules"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    path = folder / "rules" / CURRENT / "benchmarks" / f"{benchmark}.json"
    data = json.loads(path.read_bytes())
    data["quality"]["target"] = 1.0
    path.write_text(json.dumps(data))
    return folder


def carry_out(run: Run, settings: Mapping[str, Any], package: Path, options: Any) -> dict[str, Any]:
    """Make one run; returns what is kept of it. Exits where it ended for another reason."""
    common = [f"--set={one}" for one in options.settings]
    common += [f"--loader={options.loader}"] if options.loader else []
    common += [f"--data-dir={options.data_dir.absolute()}"] if options.data_dir else []
    if options.epochs:
        common += [f"--set=max_epochs={options.epochs}", f"--set=decay_epochs={options.epochs}"]
    own = as_options(settings)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        campaign = practice(
            options.preset, 1, Path(scratch), f"--seed={run.seed}", *common, *own, package=package
        )
        plan = json.loads((campaign / "campaign.json").read_bytes())
        (log,) = event_logs(campaign)
        reason = abort_reason(log)
        if reason and "not finite" not in reason:
            sys.exit(f"{run} ended early and is not kept: {reason}")
        return {
            **asdict(run),
            "accuracy": dict(accuracies(log)),
            "diverged": bool(reason),
            "machine": machine_of(log),
            "seconds": round(time.monotonic() - began, 1),
            "configuration": plan["configuration"],
        }


def key_of(kept: Mapping[str, Any]) -> Run:
    """The run of the grid that a kept one is."""
    return Run(**{name: kept[name] for name in Run.__dataclass_fields__})


def run_grid(options: Any) -> None:
    """Make the runs of this part that the output does not hold yet."""
    preset = load_preset(options.preset)
    given = dict(options.learning_rates or ())
    grid = planned(preset, options.batches, options.variants, options.runs, given)
    part, parts = options.part
    mine = grid[part - 1 :: parts]
    output = options.output or ROOT / "benchmarks" / "results" / (
        f"ablation-{options.preset}" + (f"-{part}of{parts}" if parts > 1 else "") + ".json"
    )
    kept = kept_in(output, options.preset)
    done = {key_of(one) for one in kept}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        package = without_target(Path(scratch), preset.benchmark)
        for run in mine:
            if run in done:
                continue
            if time.monotonic() - began > options.time_budget:
                print("the time budget is used up; the same command goes on", flush=True)
                break
            kept.append(carry_out(run, settings_of(run, preset), package, options))
            keep(output, options.preset, kept)
            print(f"{run}: {outcome(kept[-1])} in {kept[-1]['seconds']:.0f} s", flush=True)
    print(f"{len(kept)} of {len(mine)} runs in {output}")


def outcome(kept: Mapping[str, Any]) -> str:
    """The last accuracy of a run in percent, or that it diverged."""
    if kept["diverged"]:
        return f"diverged in epoch {len(kept['accuracy']) + 1}"
    return f"{list(kept['accuracy'].values())[-1]:.1%}"


def _rates(text: str) -> tuple[str, list[float]]:
    name, _, rates = text.partition("=")
    if name not in VARIANTS:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(VARIANTS)}")
    return name, [float(rate) for rate in rates.split(",")]


def _part(text: str) -> tuple[int, int]:
    part, parts = map(int, text.split("/"))
    if not 1 <= part <= parts:
        raise argparse.ArgumentTypeError(f"{text}: the first of two is 1/2")
    return part, parts


def parser() -> argparse.ArgumentParser:
    run = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    run.add_argument("--preset", default="tiny-imagenet")
    run.add_argument("--data-dir", type=Path)
    run.add_argument("--loader")
    run.add_argument("--batches", type=int, nargs="+", default=[4096, 8192])
    run.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(USUAL_VARIANTS))
    run.add_argument(
        "--learning-rates", type=_rates, nargs="+", metavar="VARIANT=RATE,...",
        help="at every batch, instead of the usual grid",
    )  # fmt: skip
    run.add_argument("--runs", type=int, default=1, help="seeds of each point of the grid")
    run.add_argument("--epochs", type=int, help="instead of the preset's, decay included")
    run.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    run.add_argument("--part", type=_part, default=(1, 1), metavar="I/N")
    run.add_argument("--time-budget", type=float, default=float("inf"), metavar="SECONDS",
                     help="after it no run is started")  # fmt: skip
    run.add_argument("--output", type=Path)
    return run


if __name__ == "__main__":
    run_grid(parser().parse_args())
