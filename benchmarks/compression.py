"""A step of ResNet-50 with compressed gradients against whole ones, on two simulated hosts.

    python benchmarks/compression.py [--rate 400] [--blocks 8] [--density 0.001]

One rank on each host of `two_hosts.py`, images of 64 pixels, 8 a rank, in turns. Needs root, `ip`
and `tc`. The last line is JSON: median seconds of a step and of the exchange alone, and bytes that
a rank gives to collectives in a step, measured and counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from two_hosts import launch, simulated_hosts

from fourmin.estimate.models import load_shape
from fourmin.recipe.compression import ENTRY_BYTES, sent_elements
from fourmin.recipe.presets import load_preset
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.training.comm import process_group
from fourmin.training.comm.build import build_reducer
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.models import build_model
from fourmin.training.models.init import initialize
from fourmin.training.optim.build import build_optimizer
from fourmin.training.precision import Precision
from fourmin.training.step import EagerStep, HostUpdate

PIXELS, IMAGES = 64, 8
WHOLE = ("native", "ring", "halving-doubling")
"""All-reduces that differ between two ranks."""


def counted(density: float) -> int:
    """Bytes of a step by the sizes of the model."""
    return sum(
        ENTRY_BYTES * sent_elements(one.elements, density) if one.operations else 4 * one.elements
        for one in load_shape("resnet50").gradients
    )


def timed(call: Callable[[], object]) -> float:
    dist.barrier()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def exchange(reducer: GradientReducer) -> None:
    """The gradients as they lie in the buckets, with nothing beside them."""
    for bucket in reducer.buckets:
        for slot in bucket.slots:
            reducer.arrived(bucket, slot)
    reducer.finish()


def work(plan: dict[str, Any], target: Path) -> None:
    """A rank's part."""
    place = process_group.init_process_group("cpu", 300.0)
    torch.set_num_threads(1)
    plain = dataclasses.replace(
        load_preset("resnet50-256"), precision="fp32", nodes=2, procs_per_node=1, device="cpu"
    )
    kinds = {
        f"{name} {kind}": {"allreduce": name, "gradient_dtype": kind}
        for kind in ("fp32", "fp16")
        for name in WHOLE
    }
    kinds["compressed"] = {"gradient_density": plan["density"]}
    torch.manual_seed(place.rank)
    images = torch.randn(IMAGES, 3, PIXELS, PIXELS).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (IMAGES,))
    steps, reducers = {}, {}
    for name, changes in kinds.items():
        config = dataclasses.replace(plain, **changes)
        model = build_model("resnet50", num_classes=1000, bn_momentum=0.1, bn_epsilon=1e-5)
        initialize(model, 1, "he", True)
        model.to(memory_format=torch.channels_last).train()
        reducer = reducers[name] = build_reducer(config, model.named_parameters(), place)
        if reducer.compression:
            reducer.compression.begin(config, config.max_epochs)
        precision = Precision("fp32", place.device, 1.0, 2000)
        update = HostUpdate(
            build_optimizer(model, config),
            reducer.flat_buffers,
            precision,
            LearningRateSchedule(config, 1000),
        )
        steps[name] = EagerStep(model, update, reducer, precision, 0.0)
    gradients = {
        name: [torch.randn(flat.shape) ** 3 for flat in reducer.flat_buffers]
        for name, reducer in reducers.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    exchanged: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(plan["blocks"] + 1):
        for name, reducer in reducers.items():
            taken = timed(lambda name=name: steps[name]([(images, labels)]))
            for flat, gradient in zip(reducer.flat_buffers, gradients[name], strict=True):
                flat.copy_(gradient)
            alone = timed(lambda reducer=reducer: exchange(reducer))
            if turn:  # the first one warms up
                seconds[name].append(taken)
                exchanged[name].append(alone)
    counters = reducers["compressed"].counters
    for reducer in reducers.values():
        reducer.close()
    if place.rank == 0:
        result = {
            "seconds": {name: statistics.median(values) for name, values in seconds.items()},
            "exchanged": {name: statistics.median(values) for name, values in exchanged.items()},
            "bytes": counters.bytes / counters.steps,
            "counted": counted(plan["density"]),
        }
        target.write_text(json.dumps(result))
    dist.barrier()
    process_group.destroy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=float, default=400.0, help="Mbit/s in each direction")
    parser.add_argument("--blocks", type=int, default=8, help="steps, and exchanges")
    parser.add_argument("--density", type=float, default=0.001)
    options = parser.parse_args()
    plan = {"blocks": options.blocks, "density": options.density}
    with simulated_hosts(options.rate) as hosts, tempfile.TemporaryDirectory() as folder:
        print(json.dumps(plan | launch(hosts, 1, [__file__], plan, Path(folder))))


if __name__ == "__main__":
    if Path(sys.argv[1] if len(sys.argv) > 1 else "").suffix == ".json":
        work(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
    else:
        main()
