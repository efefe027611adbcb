"""Makes a benchmark's reference convergence point from practice runs, which no submission uses.

    python benchmarks/reference_points.py digits --runs 20           # runs them, then writes
    python benchmarks/reference_points.py digits --from results/practice-digits-... [ANOTHER ...]

Writes rules/1.0/rcp/<benchmark>.json: the epochs after which each run first reached the benchmark's
target, from its event log, at the batch size and settings of the preset. Seeds are those of the
practice campaign, so they are assigned like any other and differ from every campaign that counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from practice import epochs_to, event_logs, machine_of, practice, was_interrupted

from fourmin.recipe.presets import load_preset
from fourmin.ruleset import load_ruleset

ROOT = Path(__file__).resolve().parents[1]
CONFIDENCE = 0.999
"""A refusal must be surer than MLCommons' 95%: of 20 honest campaigns one would be refused."""

SETTINGS = (
    "optimizer", "base_learning_rate", "end_learning_rate", "decay_poly_power", "decay_epochs",
    "warmup_epochs", "momentum", "weight_decay", "lars_epsilon",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--from", dest="campaigns", type=Path, nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        campaigns = options.campaigns or [practice(options.preset, options.runs, Path(scratch))]
        plans = [json.loads((folder / "campaign.json").read_bytes()) for folder in campaigns]
        plan = plans[0]
        if len({other["configuration_digest"] for other in plans}) > 1:
            sys.exit("these campaigns have different configurations: no reference point")
        logs = [log for folder in campaigns for log in event_logs(folder)]
        whole = [log for log in logs if not was_interrupted(log)]
        left_out, logs = len(logs) - len(whole), whole
        target = load_ruleset().benchmark(plan["benchmark"]).quality_target
        epochs = [epochs_to(target, log) for log in logs]
        machine = machine_of(logs[0])
    missed = [str(log.parent) for log, epoch in zip(logs, epochs, strict=True) if epoch is None]
    if missed:
        sys.exit(f"{', '.join(missed)} did not reach {target}: no reference point")
    configuration = load_preset(options.preset)
    digest = plan["configuration_digest"]
    document = {
        "schema_version": 1,
        "benchmark": plan["benchmark"],
        "source": f"{len(epochs)} practice runs (`fourmin run --practice --preset "
        f"{options.preset}`, epochs by benchmarks/reference_points.py) on {machine}, "
        f"configuration {digest[:16]}, seeds of no submission"
        + (f"; {left_out} interrupted runs left out" if left_out else ""),
        "submission_runs": 5,
        "confidence": CONFIDENCE,
        "current": "1.0",
        "rounds": {
            "1.0": [
                {
                    "global_batch_size": configuration.global_batch_size,
                    "epochs": epochs,
                    "hyperparameters": {name: getattr(configuration, name) for name in SETTINGS},
                }
            ]
        },
    }
    path = ROOT / "rules/1.0/rcp" / f"{plan['benchmark']}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"wrote {path}: epochs {document['rounds']['1.0'][0]['epochs']}")


if __name__ == "__main__":
    main()
