"""The ResNet-50 steps against plain PyTorch's: `python benchmarks/step.py [--max-autotune]`.

FP16, batch 256, on one GPU. The eager step must do at least 0.97 of the images/s of the plain
script, the fast one at least 1.25 of the best of the plain ones, torch.compile's among them: the
medians of three measurements, each with all of them in turn. At batch 32 and 64 the fast step is
only shown beside the others. Prints each table, writes every time to step.json in the current
folder, and exits with 1 if a bar is missed. `--max-autotune` takes many minutes to compile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from fourmin.bench import step
from fourmin.bench.peers import PLAIN
from fourmin.bench.step import StepReport

LARGE, SMALL = 256, (32, 64)
CALLS = 3
EAGER, FAST = 0.97, 1.25
UPDATE_SECONDS = 0.35e-3


def measure(batch_sizes: tuple[int, ...], peers: tuple[str, ...]) -> StepReport:
    report = step.measure(
        preset="resnet50-64k",
        batch_sizes=batch_sizes,
        peers=peers,
        device="cuda",
        precision="fp16",
        image_size=224,
        repeats=20,
        warmup=5,
        threads=None,
        say=print,
    )
    print(report.to_text())
    return report


def ratios(report: StepReport) -> dict[str, float]:
    """Of images/s: the eager step's to the plain script's, the fast one's to the best plain one's.

    0 where one of them could not be measured.
    """
    rates = {one.peer: one.images_per_second or 0.0 for one in report.results}
    best = max(rate for peer, rate in rates.items() if peer in PLAIN)
    if not rates["plain"]:
        return {"eager": 0.0, "fast": 0.0}
    return {"eager": rates["eager"] / rates["plain"], "fast": rates["fast"] / best}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--max-autotune", action="store_true", help="a peer more")
    left_out = () if parser.parse_args().max_autotune else ("max-autotune",)
    plain = tuple(peer for peer in PLAIN if peer not in left_out)
    large = [measure((LARGE,), (*plain, "eager", "fast")) for _ in range(CALLS)]
    small = measure(SMALL, ("plain", "compile", "fast"))
    text = json.dumps([report.to_json() for report in (*large, small)], indent=2)
    Path("step.json").write_text(text + "\n")
    found = [ratios(report) for report in large]
    missed = False
    for peer, least, whose in (("eager", EAGER, "plain"), ("fast", FAST, "the best plain one")):
        values = [one[peer] for one in found]
        missed |= statistics.median(values) < least
        told = ", ".join(f"{value:.3f}" for value in values)
        print(f"{peer} over {whose}: median of {told}; at least {least} wanted")
    update = statistics.median(report.update_seconds or float("inf") for report in large)
    missed |= update > UPDATE_SECONDS
    print(f"update: {update * 1e3:.3f} ms, at most {UPDATE_SECONDS * 1e3:.2f} wanted")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
