"""Asynchronous and batch algorithms beside synchronous training: time and epochs to the target.

    python benchmarks/algorithms.py run digits [--workers 1 2 4] [--runs 3] [--data-dir DIR]
    python benchmarks/algorithms.py page benchmarks/results/algorithms-*.json

`run` makes practice runs of every algorithm with the same seeds, batches and machine. Each
algorithm has rates of its own: all of its grid are tried once with two workers, and the one that
needed the fewest epochs (of equals, least time) is then run with every number of workers and seed.
The output file is written after every run, and what it holds already is not run again. A run that
does not reach the target counts as not reached, at whatever time it ended. `page` writes the tables
and the chart of docs/algorithms.md.

Times mean something on a machine that does nothing else; with more workers than cores they say how
much the workers get in each other's way.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from practice import (
    abort_reason,
    accuracies,
    as_options,
    epochs_to,
    event_logs,
    keep,
    kept_in,
    machine_of,
    practice,
)

from fourmin.log import keys
from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline
from fourmin.recipe.presets import load_preset
from fourmin.report.charts.files import vl_convert
from fourmin.report.charts.specs import SCHEMA
from fourmin.report.charts.theme import PAPER, config
from fourmin.ruleset import load_ruleset

ROOT = Path(__file__).resolve().parents[1]
FIRST_SEED = 2012
TUNED_WITH = 2
BEGIN, END = "<!-- comparison: written by `benchmarks/algorithms.py page` -->", "<!-- end -->"

_PLAIN = {"optimizer": "sgd", "momentum": 0, "nesterov": False}
_MOMENTUM = {"optimizer": "sgd", "momentum": 0.9, "nesterov": True}
_WHOLE_SET = {
    **_PLAIN, "learning_rate_decay": "constant", "warmup_epochs": 0, "precision": "fp32",
    "max_epochs": 90,
}  # fmt: skip
CONTENDERS: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "synchronous SGD": (_MOMENTUM, (0.1, 0.05, 0.2)),
    "synchronous LARS": ({"optimizer": "lars"}, (4.0, 2.0, 8.0)),
    "synchronous Adagrad": ({"optimizer": "adagrad"}, (0.02, 0.01, 0.04)),
    "Downpour, Adagrad": ({"algorithm": "downpour", "optimizer": "adagrad"}, (0.02, 0.01, 0.04)),
    "Downpour, every 4 steps": (
        {"algorithm": "downpour", "optimizer": "adagrad", "n_fetch": 4, "n_push": 4},
        (0.02, 0.01, 0.04),
    ),
    "Hogwild!": ({"algorithm": "hogwild", **_PLAIN}, (0.3, 0.15, 0.6)),
    "EASGD": ({"algorithm": "easgd", **_MOMENTUM}, (0.1, 0.05, 0.2)),
    "pipeline, SGD": ({"algorithm": "pipeline", **_MOMENTUM}, (0.1, 0.05, 0.2)),
    "Sandblaster L-BFGS": ({"algorithm": "sandblaster", **_WHOLE_SET}, (1.0,)),
}
"""What each sets, and its rates for batches of 16, the most usual first."""
MOST_WORKERS = {"pipeline, SGD": 3}
BATCH = 16


@dataclass(frozen=True)
class Run:
    """One run of the comparison."""

    contender: str
    workers: int
    rate: float
    seed: int


class Kept:
    """The runs that a file holds, by what they are of."""

    def __init__(self, path: Path, preset: str) -> None:
        self.path, self.preset = path, preset
        self.runs: dict[Run, dict[str, Any]] = {
            Run(**{name: one[name] for name in Run.__dataclass_fields__}): one
            for one in kept_in(path, preset)
        }

    def add(self, run: Run, found: dict[str, Any]) -> None:
        self.runs[run] = {**asdict(run), **found}
        keep(self.path, self.preset, list(self.runs.values()))

    def groups(self) -> list[tuple[str, int]]:
        """Contenders in the order of the runs, each with its numbers of workers."""
        order = list(dict.fromkeys(run.contender for run in self.runs))
        found = {(run.contender, run.workers) for run in self.runs}
        return sorted(found, key=lambda group: (order.index(group[0]), group[1]))

    def best_rate(self, contender: str) -> float:
        """The rate that reached the target after the fewest epochs; of equals in least time."""
        tried = [
            one
            for run, one in self.runs.items()
            if (run.contender, run.workers, run.seed) == (contender, TUNED_WITH, FIRST_SEED)
        ]
        return float(
            min(tried, key=lambda one: (one["epochs"] or math.inf, one["seconds"]))["rate"]
        )


def carry_out(run: Run, options: argparse.Namespace) -> dict[str, Any]:
    """Make one run; what is kept of it."""
    settings: dict[str, Any] = {
        "division": "open",
        "step": "eager",
        "device": "cpu",
        "precision": "fp32",
        "global_batch_size": BATCH,
        "threads": 1,
        **CONTENDERS[run.contender][0],
        "base_learning_rate": run.rate,
    }
    given = as_options(settings)
    given += [f"--data-dir={options.data_dir.absolute()}"] if options.data_dir else []
    with tempfile.TemporaryDirectory() as scratch:
        campaign = practice(
            options.preset, 1, Path(scratch), f"--seed={run.seed}",
            f"--procs-per-node={run.workers}", *given,
        )  # fmt: skip
        (log,) = event_logs(campaign)
        timeline = Timeline(read_log(log))
        target = load_ruleset().benchmark(load_preset(options.preset).benchmark).quality_target
        told, curve = timeline.all(keys.STALENESS), accuracies(log)
        return {
            "epochs": epochs_to(target, curve),
            "seconds": (timeline.all(keys.RUN_STOP)[-1].time_ms
                        - timeline.all(keys.RUN_START)[0].time_ms) / 1000,
            "accuracy": dict(curve),
            "staleness": told[-1].value if told else None,
            "ended": abort_reason(log),
            "machine": machine_of(log),
        }  # fmt: skip


def planned(options: argparse.Namespace, kept: Kept) -> Iterator[Run]:
    """Every run, the rates first; the best rate is known when its turn comes."""
    for name in options.contenders:
        for rate in CONTENDERS[name][1]:
            yield Run(name, TUNED_WITH, rate, FIRST_SEED)
    for seed in range(FIRST_SEED, FIRST_SEED + options.runs):
        for workers in options.workers:
            for name in options.contenders:
                if workers <= MOST_WORKERS.get(name, workers):
                    yield Run(name, workers, kept.best_rate(name), seed)


def run_all(options: argparse.Namespace) -> None:
    output = options.output or ROOT / f"benchmarks/results/algorithms-{options.preset}.json"
    kept = Kept(output, options.preset)
    for run in planned(options, kept):
        if run not in kept.runs:
            kept.add(run, carry_out(run, options))
            one = kept.runs[run]
            print(f"{run}: epochs {one['epochs']}, {one['seconds']:.1f} s", flush=True)


# The page.


def _of(kept: Kept, name: str, workers: int) -> list[dict[str, Any]]:
    """The runs of a contender at its best rate, by seed."""
    rate = kept.best_rate(name)
    found = [r for r in kept.runs if (r.contender, r.workers, r.rate) == (name, workers, rate)]
    return [kept.runs[run] for run in sorted(found, key=lambda run: run.seed)]


def _staleness(runs: Sequence[dict[str, Any]]) -> str:
    told = [one["staleness"] for one in runs if one["staleness"]]
    if not told:
        return ""
    return f"{statistics.mean(one['mean'] for one in told):.2f}, {max(one['max'] for one in told)}"


def table(kept: Kept) -> str:
    """A row for each contender and number of workers."""
    columns = "algorithm", "rate", "workers", "epochs", "seconds, median", "staleness: mean, most"
    lines = [f"| {' | '.join(columns)} |", "|---|---|---|---|---|---|"]
    for name, workers in kept.groups():
        runs = _of(kept, name, workers)
        epochs = ", ".join(str(one["epochs"] or "not") for one in runs)
        reached = [one["seconds"] for one in runs if one["epochs"]]
        seconds = f"{statistics.median(reached):.1f}" if len(reached) == len(runs) else "-"
        lines.append(
            f"| {name} | {kept.best_rate(name):g} | {workers} | {epochs} | {seconds} | "
            f"{_staleness(runs)} |"
        )
    return "\n".join(lines)


def chart(files: Sequence[Kept]) -> bytes:
    """SVG: seconds to the target against workers, a line an algorithm, a panel a benchmark; without
    what did not reach it with every seed.
    """
    panels = []
    for kept in files:
        rows = [
            {"algorithm": name, "workers": workers, "seconds": one["seconds"]}
            for name, workers in kept.groups()
            if all(one["epochs"] for one in _of(kept, name, workers))
            for one in _of(kept, name, workers)
        ]
        encoding = {
            "x": {
                "field": "workers", "type": "ordinal",
                "axis": {"title": "workers", "labelAngle": 0},
            },
            "y": {
                "field": "seconds", "type": "quantitative", "aggregate": "median",
                "scale": {"type": "log", "nice": False}, "axis": {"title": "seconds to the target"},
            },
            "color": {
                "field": "algorithm", "type": "nominal",
                "scale": {"domain": list(CONTENDERS), "scheme": "tableau10"},
                "legend": {"title": None, "labelLimit": 400},
            },
        }  # fmt: skip
        panels.append({
            "title": {"text": kept.preset, "frame": "group"}, "width": 300, "height": 260,
            "data": {"values": rows}, "encoding": encoding,
            "mark": {"type": "line", "strokeWidth": 2, "point": {"filled": True, "size": 36}},
        })  # fmt: skip
    heading = "Seconds to the target by algorithm and workers, medians"
    drawn: str = vl_convert().vegalite_to_svg({
        "$schema": SCHEMA, "config": config(PAPER), "description": heading,
        "title": {"text": heading, "fontSize": 16}, "hconcat": panels, "spacing": 28,
    })  # fmt: skip
    return drawn.encode() + b"\n"


def page(options: argparse.Namespace) -> None:
    files = [Kept(path, json.loads(path.read_bytes())["preset"]) for path in options.results]
    said = [
        BEGIN,
        "",
        "![Seconds to the target by algorithm and number of workers](algorithms.svg)",
    ]
    for kept in files:
        machine = " and ".join(sorted({one["machine"] for one in kept.runs.values()}))
        said += ["", f"`{kept.preset}`, batches of {BATCH} images, on {machine}:", "", table(kept)]
    path = ROOT / "docs/algorithms.md"
    before, _, rest = path.read_text().partition(BEGIN)
    if not rest:
        sys.exit(f"{path} has no line {BEGIN}")
    path.write_text(before + "\n".join([*said, "", END]) + rest.partition(END)[2])
    (ROOT / "docs/algorithms.svg").write_bytes(chart(files))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help="make the runs that the output does not hold yet")
    one.add_argument("preset")
    one.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    one.add_argument("--runs", type=int, default=3, help="seeds")
    one.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    one.add_argument("--data-dir", type=Path)
    one.add_argument("--output", type=Path)
    one.set_defaults(do=run_all)
    other = commands.add_parser("page", help="write docs/algorithms.md's tables and chart")
    other.add_argument("results", type=Path, nargs="+")
    other.set_defaults(do=page)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
