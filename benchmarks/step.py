"""The training steps against plain PyTorch's on one GPU: `python benchmarks/step.py [MODEL ...]`.

`resnet50` (FP16, batch 256): the eager step must do at least 0.97 of the images/s of the plain
script, the fast one at least 1.33 of the best of the plain ones, torch.compile's among them, and
its update take at most 0.35 ms; FP16 and BF16 are shown beside each other, and batches of 32 and 64
beside the plain ones. `alexnet` (FP16, batch 512): the fast step at least 1.8 of the best. `small`
(ResNet-50 at 64 pixels, FP16, batch 512): at least 1.12 of the fast step of the checkout named by
`--before FOLDER`, in turns. Ratios are medians of three measurements, each with all in turn. Prints
each table, writes every time to step.json in the current folder, and exits with 1 if a bar is
missed. `--max-autotune` is a peer more, which takes many minutes to compile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from fourmin.bench import step
from fourmin.bench.peers import PLAIN
from fourmin.bench.step import StepReport

CALLS = 3
EAGER, FAST, ALEXNET, SMALL = 0.97, 1.33, 1.8, 1.12
UPDATE_SECONDS = 0.35e-3


class Bars:
    """What was measured, and whether it is enough."""

    def __init__(self) -> None:
        self.missed = False
        self.reports: list[Any] = []

    def hold(self, what: str, values: list[float], least: float) -> None:
        """Ratios of images/s, one of each measurement."""
        self.missed |= statistics.median(values) < least
        told = ", ".join(f"{value:.3f}" for value in values)
        print(f"{what}: median of {told}; at least {least} wanted", flush=True)

    def measure(
        self, preset: str, batch_sizes: tuple[int, ...], peers: tuple[str, ...], kind: str = "fp16"
    ) -> StepReport:
        report = step.measure(
            preset=preset, batch_sizes=batch_sizes, peers=peers, device="cuda", precision=kind,
            image_size=None, repeats=20, warmup=5, threads=None, say=print,
        )  # fmt: skip
        print(report.to_text(), flush=True)
        self.reports.append(report.to_json())
        return report


def rate(report: StepReport, *peers: str) -> float:
    """Images/s of the best of `peers`; 0 where none could be measured."""
    return max(one.images_per_second or 0.0 for one in report.results if one.peer in peers)


def over(one: float, other: float) -> float:
    return one / other if other else 0.0


def resnet50(bars: Bars, plain: tuple[str, ...]) -> None:
    peers = (*plain, "eager", "fast")
    calls = [bars.measure("resnet50-64k", (256,), peers) for _ in range(CALLS)]
    for kind in ("fp16", "bf16") * CALLS:
        bars.measure("resnet50-64k", (256,), ("fast",), kind)
    bars.measure("resnet50-64k", (32, 64), ("plain", "compile", "fast"))
    eager = [over(rate(call, "eager"), rate(call, "plain")) for call in calls]
    bars.hold("eager over the plain script", eager, EAGER)
    fast = [over(rate(call, "fast"), rate(call, *plain)) for call in calls]
    bars.hold("fast over the best plain one", fast, FAST)
    update = statistics.median(call.update_seconds or float("inf") for call in calls)
    bars.missed |= update > UPDATE_SECONDS
    print(f"update: {update * 1e3:.3f} ms, at most {UPDATE_SECONDS * 1e3:.2f} wanted", flush=True)


def alexnet(bars: Bars, plain: tuple[str, ...]) -> None:
    calls = [bars.measure("alexnet-512", (512,), (*plain, "fast")) for _ in range(CALLS)]
    fast = [over(rate(call, "fast"), rate(call, *plain)) for call in calls]
    bars.hold("AlexNet, fast over the best plain one", fast, ALEXNET)


def small(bars: Bars, before: Path) -> None:
    """Whole commands, since two versions of a package do not fit into a process."""
    command = [sys.executable, "-m", "fourmin", "bench", "step", "--preset", "tiny-imagenet"]
    command += ["--batch-size", "512", "--precision", "fp16", "--peers", "fast", "--json"]
    here = Path(__file__).resolve().parents[1]
    ratios = []
    for _ in range(CALLS):
        rates = []
        for folder in (before, here):
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True)
            report = json.loads(done.stdout)
            bars.reports.append({"folder": str(folder), **report})
            rates.append(report["results"][0]["images_per_second"])
            print(f"{folder}: {rates[-1]:,.0f} images/s", flush=True)
        ratios.append(rates[1] / rates[0])
    bars.hold("64 pixels, fast over what it was", ratios, SMALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="resnet50, alexnet, small")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="a checkout, for small")
    parser.add_argument("--max-autotune", action="store_true", help="a peer more")
    options = parser.parse_args()
    models = options.models or ["resnet50", "alexnet", *(["small"] if options.before else [])]
    if unknown := {*models} - {"resnet50", "alexnet", "small"}:
        parser.error(f"no model {', '.join(sorted(unknown))}")
    if "small" in models and options.before is None:
        parser.error("small needs --before FOLDER")
    left_out = () if options.max_autotune else ("max-autotune",)
    plain = tuple(peer for peer in PLAIN if peer not in left_out)
    bars = Bars()
    if "resnet50" in models:
        resnet50(bars, plain)
    if "alexnet" in models:
        alexnet(bars, plain)
    if "small" in models:
        small(bars, options.before)
    Path("step.json").write_text(json.dumps(bars.reports, indent=2) + "\n")
    return int(bars.missed)


if __name__ == "__main__":
    sys.exit(main())
