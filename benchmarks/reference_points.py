"""Makes a benchmark's reference convergence point from practice runs, which no submission uses.

    python benchmarks/reference_points.py digits --runs 20           # runs them, then writes
    python benchmarks/reference_points.py fractals-resnet50 --runs 10 --data-dir DIR --results kept
    python benchmarks/reference_points.py digits --from results/practice-digits-... [ANOTHER ...]
    python benchmarks/reference_points.py fractals-resnet50 --runs 3 --data-dir DIR --add

Writes the point of the runs' batch size into rules/1.0/rcp/<benchmark>.json and leaves those of
other batch sizes: the epochs after which each run first reached the benchmark's target, and the
accuracy of each evaluation up to it, from its event log. Seeds are those of the practice campaigns,
so they are assigned like any other and differ from every campaign that counts. Runs that were cut
off are left out; with `--results` those that ended are kept, `--from` takes campaigns of one
configuration, and `--add` adds the runs to those of their batch size that the file has already.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from practice import (
    accuracies,
    epochs_to,
    event_logs,
    has_ended,
    machine_of,
    practice,
    was_interrupted,
)

from fourmin.ruleset import load_ruleset

ROOT = Path(__file__).resolve().parents[1]
CONFIDENCE = 0.999
"""A refusal must be surer than MLCommons' 95%: of 20 honest campaigns one would be refused."""
ROUND = "1.0"

SETTINGS = (
    "optimizer", "base_learning_rate", "end_learning_rate", "decay_poly_power", "decay_epochs",
    "warmup_epochs", "momentum", "weight_decay", "lars_epsilon",
)  # fmt: skip


def with_point(
    document: Mapping[str, Any] | None,
    benchmark: str,
    point: Mapping[str, Any],
    source: str,
    *,
    add: bool = False,
) -> dict[str, Any]:
    """`document` (None: a new one) with this point in place of any of its batch size.

    With `add` the runs of that one stay; ends the program where its hyperparameters are others.
    What is said of the source of points that stay does too, a line for each.
    """
    batch = point["global_batch_size"]
    points = [] if document is None else document["rounds"][ROUND]
    kept = [one for one in points if one["global_batch_size"] != batch]
    for one in points if add else ():
        if one["global_batch_size"] == batch:
            if one["hyperparameters"] != point["hyperparameters"]:
                sys.exit(f"the point of batch {batch} has other hyperparameters: nothing is added")
            point = {
                **point,
                **{key: one.get(key, []) + point[key] for key in ("epochs", "curves")},
            }
    told = str(document["source"]).splitlines() if document and (kept or add) else []
    sources = [line for line in told if add or not line.startswith(f"batch {batch}:")]
    return {
        "schema_version": 1,
        "benchmark": benchmark,
        "source": "\n".join([*sources, f"batch {batch}: {source}"]),
        "submission_runs": 5,
        "confidence": CONFIDENCE,
        "current": ROUND,
        "rounds": {ROUND: sorted([*kept, point], key=lambda one: int(one["global_batch_size"]))},
    }


def gathered(campaigns: Sequence[Path]) -> tuple[str, dict[str, Any], str]:
    """(benchmark, point, source) of campaigns; ends the program where they make none."""
    plans = [json.loads((folder / "campaign.json").read_bytes()) for folder in campaigns]
    plan, digest = plans[0], plans[0]["configuration_digest"]
    if any(other["configuration_digest"] != digest for other in plans):
        sys.exit("these campaigns have different configurations: no reference point")
    logs = [log for folder in campaigns for log in event_logs(folder)]
    whole = [log for log in logs if has_ended(log) and not was_interrupted(log)]
    target = load_ruleset().benchmark(plan["benchmark"]).quality_target
    curves = [accuracies(log) for log in whole]
    epochs = [epochs_to(target, curve) for curve in curves]
    missed = [str(log.parent) for log, epoch in zip(whole, epochs, strict=True) if epoch is None]
    if missed or not whole:
        sys.exit(f"{', '.join(missed) or 'no run'} did not reach {target}: no reference point")
    configuration = plan["configuration"]
    point = {
        "global_batch_size": configuration["global_batch_size"],
        "epochs": epochs,
        "curves": [
            [list(at) for at in curve if at[0] <= end]
            for curve, end in zip(curves, epochs, strict=True)
            if end is not None
        ],
        "hyperparameters": {name: configuration[name] for name in SETTINGS},
    }
    cut_off = len(logs) - len(whole)
    source = (
        f"{len(epochs)} practice runs (`fourmin run --practice --preset {configuration['preset']}`,"
        f" epochs by benchmarks/reference_points.py) on {machine_of(whole[0])}, configuration "
        f"{digest[:16]}, seeds of no submission"
        + (f"; {cut_off} runs that were cut off left out" if cut_off else "")
    )
    return plan["benchmark"], point, source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("preset")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--results", type=Path, help="an empty folder in which the runs are kept")
    parser.add_argument("--from", dest="campaigns", type=Path, nargs="+")
    parser.add_argument("--add", action="store_true", help="to the runs that the file has")
    given = parser.parse_args()
    options = ["--data-dir", str(given.data_dir.absolute())] if given.data_dir else []
    for change in given.changes:
        options += ["--set", change]
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.results or Path(scratch)
        campaigns = given.campaigns or [practice(given.preset, given.runs, folder, *options)]
        benchmark, point, source = gathered(campaigns)
    path = ROOT / "rules" / ROUND / "rcp" / f"{benchmark}.json"
    before = json.loads(path.read_bytes()) if path.exists() else None
    document = with_point(before, benchmark, point, source, add=given.add)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"wrote {path}: batch {point['global_batch_size']}, epochs {point['epochs']}")


if __name__ == "__main__":
    main()
