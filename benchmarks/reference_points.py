"""Makes a benchmark's reference convergence point from practice runs, which no submission uses.

    python benchmarks/reference_points.py digits --runs 20           # runs them, then writes
    python benchmarks/reference_points.py digits --from results/practice-digits-...

Writes rules/1.0/rcp/<benchmark>.json: the epochs that each run needed to its target, at the batch
size and settings of the preset. Seeds are those of the practice campaign, so they are assigned like
any other and differ from every campaign that counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from fourmin.presets import load_preset

ROOT = Path(__file__).resolve().parents[1]
CONFIDENCE = 0.999
"""A refusal must be surer than MLCommons' 95%: of 20 honest campaigns one would be refused."""

SETTINGS = (
    "optimizer", "base_learning_rate", "end_learning_rate", "decay_poly_power", "decay_epochs",
    "warmup_epochs", "momentum", "weight_decay", "lars_epsilon",
)  # fmt: skip


def practice(preset: str, runs: int, folder: Path) -> Path:
    """Run a practice campaign; returns its folder."""
    command = [sys.executable, "-m", "fourmin", "run", "--practice", "--preset", preset]
    command += ["--runs", str(runs), "--results-dir", str(folder), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Path(json.loads(done.stdout.splitlines()[-1])["campaign"])


def main() -> None:
    """Collect the epochs and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--from", dest="campaign", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        campaign = options.campaign or practice(options.preset, options.runs, Path(scratch))
        plan = json.loads((campaign / "campaign.json").read_bytes())
        results = [json.loads(p.read_bytes()) for p in campaign.glob("run-*/result.json")]
    results.sort(key=lambda result: result["run"])
    missed = [result["run"] for result in results if result["status"] != "converged"]
    if missed:
        sys.exit(f"runs {missed} did not reach the target: no reference point")
    configuration = load_preset(options.preset)
    digest = plan["configuration_digest"]
    document = {
        "schema_version": 1,
        "benchmark": plan["benchmark"],
        "source": f"{len(results)} practice runs of preset {options.preset} by this tool "
        f"(benchmarks/reference_points.py), configuration {digest[:16]}, seeds of no submission",
        "submission_runs": 5,
        "confidence": CONFIDENCE,
        "current": "1.0",
        "rounds": {
            "1.0": [
                {
                    "global_batch_size": configuration.global_batch_size,
                    "epochs": [round(result["epochs"]) for result in results],
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
