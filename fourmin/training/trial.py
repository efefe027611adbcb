"""How fast one node is by itself: steps on synthetic images, and all-reduces among its workers.

torchrun starts it with `--module fourmin.training.trial`; FOURMIN_TRIAL names a file with the
configuration, and rank 0 writes beside it what was measured.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from fourmin.launch.timeouts import Timeouts
from fourmin.launch.trial import TRIAL_VARIABLE
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.ruleset import load_ruleset
from fourmin.training.backends import set_backends
from fourmin.training.comm import process_group
from fourmin.training.comm.build import build_reducer
from fourmin.training.evaluate import synthetic_batch
from fourmin.training.models import build_model
from fourmin.training.optim.build import build_optimizer
from fourmin.training.precision import Precision
from fourmin.training.step import EagerStep, HostUpdate

WARMUP, STEPS = 3, 20


def main() -> None:
    """Measure as one worker of this node."""
    path = Path(os.environ[TRIAL_VARIABLE])
    asked = Configuration.from_json(json.loads(path.read_text()))
    # The eager step with native all-reduces: what a node can do, not what was asked of all.
    config = asked.with_overrides(
        {"nodes": 1, "allreduce": "native", "tuning": (), "group_size": 0, "bn_span": 1}
    )
    set_backends(config.threads)
    place = process_group.init_process_group(config.device, Timeouts.imports)
    model = build_model(
        config.model,
        num_classes=int(load_ruleset().benchmark(config.benchmark).dataset["classes"]),
        bn_momentum=config.bn_momentum,
        bn_epsilon=config.bn_epsilon,
    )
    model.to(place.device).to(memory_format=torch.channels_last).train()
    reducer = build_reducer(config, model.named_parameters(), place)
    precision = Precision(
        config.precision, place.device, config.loss_scale, config.loss_scale_growth_interval
    )
    schedule, optimizer = LearningRateSchedule(config, 1000), build_optimizer(model, config)
    update = HostUpdate(optimizer, reducer.flat_buffers, precision, schedule)
    step = EagerStep(model, update, reducer, precision, config.label_smoothing)
    batch = synthetic_batch(config.local_batch_size, config.image_size, place.device)
    gradients = torch.zeros(sum(p.numel() for p in model.parameters()), device=place.device)
    found = {
        "step_ms": _median_ms(lambda: step([batch]), place.device),
        # One worker has nobody to wait for.
        "allreduce_ms": _median_ms(lambda: dist.all_reduce(gradients), place.device)
        if place.world_size > 1
        else 0.0,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if config.device == "cuda" else "",
    }
    if place.rank == 0:
        path.with_suffix(".out").write_text(json.dumps(found))
    process_group.destroy()


def _median_ms(call: Callable[[], object], device: torch.device) -> float:
    """Of STEPS calls, each waited for."""
    times = []
    for _ in range(WARMUP + STEPS):
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[WARMUP:]) * 1000


if __name__ == "__main__":
    main()
