"""Scaling of a step over the GPUs of one node, and all-reduce bandwidths, in one go.

    python benchmarks/scaling.py [--preset NAME] [--gpus N] [--batch 256] [--steps 30]
                                 [--step eager|fast] [--only native lockstep ...] [--repeat 3]
                                 [--output FILE]

Starts torchrun on this machine. FP16, channels_last, synthetic images that stay on the GPU. In the
same processes, taking turns: fourmin's step on each GPU alone without any communication (what N
GPUs are held against), with `native` and with `tuned`; and the plain scripts of
`fourmin.bench.peers`, as they are and compiled, alone and in torch's DistributedDataParallel with
static_graph and gradient_as_bucket_view. Efficiency is the images/s
of a GPU among N over those of the same step on a GPU alone, which also runs on all GPUs at once,
so that clocks and power are alike. `--repeat` measures so many times in the same processes, each
time anew, and gives the median efficiency. The last line of the output is JSON.

`--only` takes the other all-reduces as well, and `span`: `native` with the batch statistics of all
GPUs shared (`bn_span`). Two more, if named, tell where the rest goes: `lockstep` is the lone step
and an all-reduce of 4 bytes after it (what waiting for the slowest GPU of each step costs),
`silent` the step as `native` has it, with all its buckets, that sends nothing (what cutting it into
buckets costs).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fourmin.recipe.allreduces import NAMES
from fourmin.recipe.configuration import FIELDS
from fourmin.recipe.presets import load_preset
from fourmin.system.environment import DEVICE_QUEUES

PRESET = "resnet50-8k"
WARM_UP = 8
LEAD_IN = 4
BLOCKS = 6
PEERS = {"ddp": "plain", "ddp-compile": "compile"}
"""DistributedDataParallel around a plain script's model, and what kind of script."""
CONTENDERS = ("lockstep", "silent", "span", *NAMES, *PEERS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--gpus", type=int, default=0, help="0: all that are visible")
    parser.add_argument("--batch", type=int, default=256, help="images on each GPU")
    parser.add_argument("--steps", type=int, default=30, help="in a block; 6 blocks of each")
    parser.add_argument("--preset", default=PRESET, help="model, image size, optimizer, buckets")
    parser.add_argument("--repeat", type=int, default=1, help="measurements; the median counts")
    preset = load_preset(parser.parse_known_args()[0].preset)
    parser.add_argument(
        "--step", choices=FIELDS["step"].choices, default="eager", help="of fourmin"
    )
    parser.add_argument("--fusion-threshold", type=int, default=preset.fusion_threshold)
    parser.add_argument(
        "--gradient-dtype", choices=FIELDS["gradient_dtype"].choices, default=preset.gradient_dtype
    )
    parser.add_argument("--max-size", type=int, default=1 << 30, help="bytes, of the all-reduce")
    parser.add_argument("--group-size", type=int, default=0, help="GPUs in a group")
    parser.add_argument(
        "--only", nargs="+", choices=CONTENDERS, default=["native", "tuned", *PEERS]
    )
    parser.add_argument("--output", type=Path, help="write the JSON there as well")
    options = parser.parse_args()
    import torch

    gpus = options.gpus or torch.cuda.device_count()
    if gpus < 2:
        print("scaling needs at least two GPUs", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        plan, result = Path(folder) / "plan.json", Path(folder) / "result.json"
        fields = {name: value for name, value in vars(options).items() if name != "output"}
        plan.write_text(json.dumps(fields))
        subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             f"--nproc-per-node={gpus}", __file__, "worker", str(plan), str(result)],
            env={
                **DEVICE_QUEUES, **os.environ,
                "OMP_NUM_THREADS": "4", "TORCH_CPP_LOG_LEVEL": "ERROR",
            },
            check=True,
        )  # fmt: skip
        found = json.loads(result.read_text())
    from fourmin.bench.allreduce import table_lines, with_bandwidths

    bandwidths = with_bandwidths(found["allreduce"])
    print("\n".join(table_lines(bandwidths)))
    found["allreduce"] = bandwidths
    if options.output:
        options.output.write_text(json.dumps(found, indent=2) + "\n")
    brief = {name: value for name, value in found.items() if name != "allreduce"}
    largest = bandwidths["rows"][-1]["bytes"]
    brief["bus_bandwidth"] = {
        row["algorithm"]: round(row["bus_bandwidth"], 1)
        for row in bandwidths["rows"]
        if row["bytes"] == largest
    }
    print(json.dumps(brief))
    return 0


def worker(plan_path: str, result_path: str) -> None:
    """One GPU's part."""
    import torch
    import torch.distributed as dist

    from fourmin.training.comm import measure, process_group

    options = json.loads(Path(plan_path).read_text())
    place = process_group.init_process_group("cuda", 300.0)
    torch.backends.cudnn.benchmark = True
    sizes = [1 << power for power in range(10, 41, 2) if 1 << power <= options["max_size"]]
    plan = measure.MeasurePlan(
        sizes=tuple(sizes),
        device="cuda",
        group_size=options["group_size"],
        dtype="float16",
        iterations=10,
        seconds=4.0,
    )
    bandwidths = measure.tune_and_measure(plan, place)
    steps = build_steps(options, place, bandwidths)
    measured = [take_turns(steps, options, place) for _ in range(options["repeat"])]
    found = [
        {
            "images_per_second_per_gpu": {name: round(rate, 1) for name, rate in rates.items()},
            "efficiency": {
                name: round(rates[name] / rates[alone(name)], 4) for name in options["only"]
            },
        }
        for rates in measured
    ]
    if place.rank == 0:
        result = {
            "gpus": place.world_size,
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "preset": options["preset"],
            "batch": options["batch"],
            "step": options["step"],
            "fusion_threshold": options["fusion_threshold"],
            "gradient_dtype": options["gradient_dtype"],
            **{
                kind: {name: statistics.median(one[kind][name] for one in found) for name in values}
                for kind, values in found[0].items()
            },
            "measurements": found,
            "allreduce": bandwidths,
        }
        Path(result_path).write_text(json.dumps(result))
    dist.barrier(device_ids=[place.local_rank])
    process_group.destroy()


def alone(contender: str) -> str:
    """The lone step that a contender is held against."""
    return f"alone-{contender}" if contender in PEERS else "alone"


def build_steps(
    options: dict[str, Any], place: Any, measured: dict[str, Any]
) -> dict[str, Callable[[], object]]:
    """One training step of each kind, on images of its own GPU, with the tables `measured`."""
    import torch
    import torch.distributed as dist

    from fourmin.bench.peers import Plain, resnet50
    from fourmin.recipe.schedule import LearningRateSchedule
    from fourmin.ruleset import load_ruleset
    from fourmin.training.comm.build import build_reducer
    from fourmin.training.comm.fusion import GradientReducer
    from fourmin.training.comm.native import NativeAllReduce
    from fourmin.training.fast.choose import build_step, refuse_another_step
    from fourmin.training.models import build_model
    from fourmin.training.models.batchnorm import apply_bn_span
    from fourmin.training.models.init import initialize
    from fourmin.training.optim.build import build_optimizer
    from fourmin.training.precision import DTYPES, Precision

    batch = options["batch"]
    config = dataclasses.replace(
        load_preset(options["preset"]),
        nodes=1,
        procs_per_node=place.world_size,
        global_batch_size=batch * place.world_size,
        gradient_accumulation_steps=1,
        bn_span=1,
        device="cuda",
        precision="fp16",
        group_size=options["group_size"],
        fusion_threshold=options["fusion_threshold"],
        gradient_dtype=options["gradient_dtype"],
        hybrid_large=measured["hybrid_large"],
        hybrid_threshold=measured["hybrid_thresholds"][measured["hybrid_large"]],
        tuning=tuple(measured["tuning"]),
    )
    lone = dataclasses.replace(place, rank=0, world_size=1, ranks_per_node=1)
    classes = int(load_ruleset().benchmark(config.benchmark).dataset["classes"])
    images = torch.randn(batch, 3, config.image_size, config.image_size, device=place.device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (batch,), device=place.device)

    def model() -> torch.nn.Module:
        made = build_model(
            config.model,
            num_classes=classes,
            bn_momentum=config.bn_momentum,
            bn_epsilon=config.bn_epsilon,
        ).to(device=place.device, memory_format=torch.channels_last)
        initialize(made, 1, config.initialization, config.zero_last_gamma)
        return made.train()

    def schedule() -> LearningRateSchedule:
        return LearningRateSchedule(config, 100)

    def precision() -> Precision:
        return Precision("fp16", place.device, 1024.0, 2000)

    def own(
        kind: str, allreduce: str, workers: Any, *, silent: bool = False, span: int = 1
    ) -> Callable[[], object]:
        """fourmin's step of a kind among `workers`; a lone or silent one sends nothing."""
        made = model()
        apply_bn_span(made, span, workers.world_size)
        asked = dataclasses.replace(
            config,
            allreduce=allreduce,
            group_size=config.group_size if workers.world_size > 1 else 0,
        )
        if silent:
            reducer = GradientReducer(
                made.named_parameters(),
                NativeAllReduce(1),
                workers.world_size,
                config.fusion_threshold,
                bucket_dtype=DTYPES[config.gradient_dtype],
            )
        else:
            reducer = build_reducer(asked, made.named_parameters(), workers)
        step = build_step(
            kind,
            made,
            build_optimizer(made, config),
            reducer,
            precision(),
            schedule(),
            config.label_smoothing,
            total_steps=options["repeat"] * (BLOCKS + 1) * (WARM_UP + options["steps"]),
            growth_interval=2000,
            world_size=workers.world_size,
            say=refuse_another_step,
        )
        return lambda: step([(images, labels)])

    def lockstep() -> Callable[[], object]:
        step, word = own(options["step"], "native", lone), torch.zeros(1, device=place.device)

        def both() -> None:
            step()
            dist.all_reduce(word)

        return both

    def plain(kind: str, workers: Any) -> Callable[[], object]:
        gpu = workers.local_rank if workers.world_size > 1 else None
        make = partial(resnet50, classes) if config.model == "resnet50" else model
        return Plain(make, "fp16", images, labels, gpu).step(kind)

    builders: dict[str, Callable[[], Callable[[], object]]] = {
        "alone": lambda: own(options["step"], "native", lone),
        "lockstep": lockstep,
        "silent": lambda: own(options["step"], "native", place, silent=True),
        "span": lambda: own(options["step"], "native", place, span=place.world_size),
        **{name: partial(own, options["step"], name, place) for name in NAMES},
        **{name: partial(plain, kind, place) for name, kind in PEERS.items()},
        **{f"alone-{name}": partial(plain, kind, lone) for name, kind in PEERS.items()},
    }
    asked = {*options["only"], *map(alone, options["only"])}
    return {name: build() for name, build in builders.items() if name in asked}


def take_turns(
    steps: dict[str, Callable[[], object]], options: dict[str, Any], place: Any
) -> dict[str, float]:
    """Median images/s of a GPU for each kind of step, from blocks timed by the slowest GPU.

    A block begins on an idle GPU, where the first all-reduce waits for the host of another: its
    clock, that of the GPU, starts after some steps.
    """
    import torch
    import torch.distributed as dist

    rates: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(BLOCKS + 1):
        # In another order each turn, the same on all ranks: what ran before warms the GPU.
        for name, step in random.Random(turn).sample([*steps.items()], len(steps)):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            dist.barrier(device_ids=[place.local_rank])
            for _ in range(LEAD_IN if turn else WARM_UP):
                step()
            start.record()
            for _ in range(options["steps"]):
                step()
            stop.record()
            torch.cuda.synchronize()
            milliseconds = torch.tensor(start.elapsed_time(stop), device=place.device)
            dist.all_reduce(milliseconds, op=dist.ReduceOp.MAX)
            if turn:
                rates[name].append(1000 * options["batch"] * options["steps"] / float(milliseconds))
    return {name: statistics.median(values) for name, values in rates.items()}


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(*sys.argv[2:])
        os._exit(0)  # without finalizers, which threads of torch can abort
    else:
        sys.exit(main())
