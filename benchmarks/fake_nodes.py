"""Many nodes of one worker each on this machine: how long they take to join and to start, and
whether every all-reduce trains the same weights.

    python benchmarks/fake_nodes.py [--nodes N] [--output FILE]

Command, nodes, torchrun's agents and process groups are the real ones; only what a worker does is
replaced, so that one start serves all algorithms: it takes 20 steps of a small network under each.
The parameters of all ranks must be the same bits, and those of all algorithms within 1e-5 of
native's. Prints JSON; exit code 1 where they are not. About 0.7 GB a node.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from fourmin.base.canonical import sha256_hex
from fourmin.datasets.digits import ensure_digits
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.launch import Surroundings, torchrun
from fourmin.launch.control import ControlClient
from fourmin.launch.job import JOB_VARIABLE, Job
from fourmin.launch.wire import TOKEN_VARIABLE
from fourmin.ledger.campaign import CAMPAIGN_FILE
from fourmin.ledger.lock import CampaignLock
from fourmin.recipe.allreduces import NAMES
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.system.software import package_digest

STEPS = 20
NEAR = 1e-5
GROUP = 4
NODE = f"""
import os, sys
from fourmin.launch import node
os.environ["PYTHONPATH"] = os.pathsep.join(
    [{str(Path(__file__).resolve().parent)!r}, *filter(None, [os.environ.get("PYTHONPATH")])]
)
real = node.worker_arguments
node.worker_arguments = lambda configuration, place: [
    *real(configuration, place)[:-1], "fake_nodes", "--worker"
]
node.main(sys.argv[1:])
"""


def changes(name: str, nodes: int) -> dict[str, Any]:
    """What an algorithm needs to be told."""
    found: dict[str, Any] = {"allreduce": name, "group_size": GROUP if nodes % GROUP == 0 else 0}
    if name == "tuned":
        found["tuning"] = ("0:halving-doubling", "16384:ring")
    return found


def work() -> None:
    """As one worker: train under each algorithm, and compare."""
    import torch
    import torch.distributed as dist

    from fourmin.training.backends import set_backends
    from fourmin.training.comm import process_group
    from fourmin.training.comm.build import build_reducer
    from fourmin.training.optim.build import build_optimizer
    from fourmin.training.precision import Precision
    from fourmin.training.step import EagerStep, HostUpdate

    def flat(model: torch.nn.Module) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    job = Job.read(Path(os.environ[JOB_VARIABLE]))
    control = ControlClient(job.control_socket, int(os.environ["RANK"]))
    control.imported()
    config = job.configuration
    set_backends(config.threads)
    place = process_group.init_process_group("cpu", job.imports_seconds)
    if place.rank == 0:
        control.ask_to_start()
    dist.barrier()
    found: dict[str, dict[str, Any]] = {}
    native = torch.empty(0)
    for name in NAMES:
        own = config.with_overrides(changes(name, config.nodes))
        torch.manual_seed(1)
        # Without kinks: where a ReLU's input is nearly 0, the last bit of a sum decides a gradient.
        pixels = 3 * own.image_size**2
        model = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(pixels, 96), torch.nn.Tanh(),
            torch.nn.Linear(96, 96), torch.nn.Tanh(), torch.nn.Linear(96, 10),
        )  # fmt: skip
        first = flat(model)
        began = time.perf_counter()
        reducer = build_reducer(own, model.named_parameters(), place)
        precision = Precision("fp32", place.device, 1.0, 1)
        schedule, optimizer = LearningRateSchedule(own, 100), build_optimizer(model, own)
        update = HostUpdate(optimizer, reducer.flat_buffers, precision, schedule)
        step = EagerStep(model, update, reducer, precision, own.label_smoothing)
        images = torch.Generator().manual_seed(1000 + place.rank)
        times = []
        for number in range(STEPS):
            batch = torch.randn(4, 3, own.image_size, own.image_size, generator=images)
            step([(batch, torch.arange(number, number + 4) % 10)])
            times.append(time.perf_counter() - began)
            began = time.perf_counter()
        weights = flat(model)
        digest = hashlib.sha256(weights.numpy().tobytes()).digest()
        own_digest = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
        everyone = [torch.empty_like(own_digest) for _ in range(place.world_size)]
        dist.all_gather(everyone, own_digest)
        native = weights if name == "native" else native
        found[name] = {
            "first_step_ms": round(times[0] * 1000, 1),
            "step_ms": round(statistics.median(times[1:]) * 1000, 2),
            "ranks_bit_equal": all(torch.equal(one, own_digest) for one in everyone),
            "largest_difference_from_native": float((weights - native).abs().max()),
            "largest_change_in_training": float((weights - first).abs().max()),
            "parameters": weights.numel(),
        }
        del step, reducer
    if place.rank == 0:
        job.events_log.write_text(json.dumps(found))
    process_group.destroy()
    control.finish()


def fake_job(folder: Path, nodes: int) -> Job:
    """A job whose campaign is nothing but a folder that is locked."""
    campaign = folder / "campaign"
    (campaign / "run-1").mkdir(parents=True)
    (campaign / CAMPAIGN_FILE).write_text("{}")
    data = ensure_digits()
    configuration: Configuration = load_preset("digits").with_overrides(
        {
            "nodes": nodes, "procs_per_node": 1, "device": "cpu", "precision": "fp32",
            "threads": 1, "loader": "torchvision", "collective_timeout_seconds": 600.0,
            "hybrid_threshold": 16384, "fusion_threshold": 65536,
            # Small steps: large ones on noise would blow up the last bits of any sum.
            "optimizer": "sgd", "base_learning_rate": 0.005, "learning_rate_decay": "constant",
            "warmup_epochs": 0.0,
        }
    )  # fmt: skip
    return Job(
        configuration=configuration, ruleset="1.0", run=1, attempt=1, seed=1,
        campaign=sha256_hex(b"{}"), practice=True, submitter="x", system_name="x", system={},
        system_digest="", package_digest=package_digest(),
        dataset=Manifest.load(data / MANIFEST_NAME).facts(), data_dir=data,
        manifest=data / MANIFEST_NAME, events_log=campaign / "run-1" / "events.log",
        checkpoints=campaign / "checkpoints", scratch=folder,
    )  # fmt: skip


def measure(nodes: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Start `nodes` nodes and have them train."""
    others: list[subprocess.Popen[bytes]] = []

    def command(addresses: list[str], port: str, index: int, timeouts: object) -> list[str]:
        place = f"{','.join(addresses)}:{port}"
        return [sys.executable, "-c", NODE, place, "--index", str(index), "--name", f"fake{index}"]

    def by_hand(text: str) -> None:
        if f"{TOKEN_VARIABLE}=" in text:
            variable, *line = shlex.split(text)
            token = variable.partition("=")[2]
            others.append(subprocess.Popen(line, env={**os.environ, TOKEN_VARIABLE: token}))
        else:
            say(text)

    with (
        tempfile.TemporaryDirectory() as scratch,
        mock.patch.object(torchrun, "_node_command", command),
    ):
        job = fake_job(Path(scratch), nodes)
        launcher = torchrun.TorchrunLauncher(Surroundings(say=by_hand, address="127.0.0.1"))
        try:
            with CampaignLock(job.events_log.parents[1]):
                began = time.monotonic()
                # Apart from the start, which looks at them first.
                launcher._nodes(nodes)
                joined = time.monotonic()
                run = launcher.start(job)
                looked = time.monotonic()
                imported, finished, ready = 0, 0, 0.0
                while finished < nodes:
                    message = run.messages.get(timeout=1800)
                    imported += message.kind == "imported"
                    finished += message.kind == "finished"
                    if message.kind == "ready":
                        ready = time.monotonic()
                        run.go(message.rank)
                    if message.kind in ("failed", "lost", "node-lost"):
                        run.kill()
                        raise SystemExit(f"{message}\n{run.output()[-2000:]}")
                ended = time.monotonic()
                run.kill()
            found = json.loads(job.events_log.read_text())
        finally:
            launcher.close()
            for process in others:
                process.wait(60)
    return {
        "nodes": nodes,
        "cores": os.cpu_count(),
        "join_seconds": round(joined - began, 2),
        "look_and_start_seconds": round(looked - joined, 2),
        "import_and_join_each_other_seconds": round(ready - looked, 2),
        "training_seconds": round(ended - ready, 2),
        "steps": STEPS,
        "algorithms": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return
    os.environ.pop(TOKEN_VARIABLE, None)
    found = measure(options.nodes, lambda text: print(text, file=sys.stderr))
    text = json.dumps(found, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    same = all(
        one["ranks_bit_equal"] and one["largest_difference_from_native"] <= NEAR
        for one in found["algorithms"].values()
    )
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
