"""What the processes of tests of Sandblaster do: a regression of the digits, with mishaps."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from fourmin.base.errors import FourminError
from fourmin.launch.network import free_port
from fourmin.training.algorithms import calls
from fourmin.training.algorithms.lbfgs import LBFGS
from fourmin.training.algorithms.shards import (
    REPLICA,
    SHARD,
    Coordinator,
    Replica,
    Shard,
    Term,
)

SAMPLES, PORTION, PENALTY = 200, 16, 5e-4
PORTIONS = -(-SAMPLES // PORTION)
HOSTS = 3
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "sklearn.datasets"])


def loss_of(x: Tensor, samples: range = range(SAMPLES)) -> Tensor:
    """The samples' share of the mean loss with a penalty, of weights (640,)."""
    images, labels = load_digits(return_X_y=True)
    own = slice(samples.start, samples.stop)
    logits = torch.from_numpy(images[own] / 16 - 0.3) @ x.view(64, 10)
    total = functional.cross_entropy(logits, torch.from_numpy(labels[own]), reduction="sum")
    return (total + len(samples) * PENALTY * x.square().sum()) / SAMPLES


@dataclass
class Asked:
    """What a run of processes does, and which worker has which mishap."""

    folder: Path
    evaluations: int
    settings: dict[str, Any]
    dies: dict[int, int] = field(default_factory=dict)
    """At which of its calls a worker kills itself."""
    sleeps: dict[int, float] = field(default_factory=dict)
    """Seconds before each answer of a worker."""
    raises: Sequence[int] = ()


def run(asked: Asked, seconds: float = 120.0) -> dict[str, Any]:
    """Run three hosts, two of them shards, and a worker of each.

    Returns what the coordinator wrote, and the workers' exit codes.
    """
    asked.folder.mkdir()
    port = free_port()
    ends, processes = [], []
    for rank in range(HOSTS):
        for worker in (False, True):
            ours, its = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=_process, args=(rank, worker, port, its, asked))
            process.start()
            its.close()
            ends.append(ours)
            processes.append(process)
    try:
        # The host of rank 0 says when all is over; then all leave.
        assert ends[0].poll(seconds), "still running"
        ends[0].recv()
    finally:
        for end in ends:
            end.close()
        for process in processes:
            process.join(60)
            if process.is_alive():
                process.kill()
                process.join()
    codes = [process.exitcode for process in processes]
    assert codes[::2] == [0] * HOSTS
    return {**torch.load(asked.folder / "found.pt"), "codes": codes[1::2]}


def _process(rank: int, worker: bool, port: int, line: Connection, asked: Asked) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if worker:
        calls.serve(REPLICA, Replica(_gradient(rank, asked), (0, 1)))
    elif rank < 2:
        shard = Shard()
        shard.put("x", torch.zeros(640).tensor_split(2)[rank])
        calls.serve(SHARD, shard)
    calls.join(rank, HOSTS, 60, worker=worker)
    if rank == 0 and not worker:
        torch.save(_coordinate(asked), asked.folder / "found.pt")
        line.send(None)
    try:
        line.recv()
    except EOFError:
        calls.leave()


def _gradient(rank: int, asked: Asked) -> Any:
    called = 0

    def gradient(weights: Tensor, portion: int) -> Term:
        nonlocal called
        called += 1
        if called == asked.dies.get(rank):
            os.kill(os.getpid(), signal.SIGKILL)
        if rank in asked.raises:
            raise OSError("no such image")
        time.sleep(asked.sleeps.get(rank, 0.0))
        x = weights.clone().requires_grad_()
        samples = range(portion * PORTION, min((portion + 1) * PORTION, SAMPLES))
        loss = loss_of(x, samples)
        rest = (torch.tensor([samples.start, samples.stop]),)
        return Term(float(loss.detach()), torch.autograd.grad(loss, x)[0], rest)

    return gradient


def _coordinate(asked: Asked) -> dict[str, Any]:
    coordinator = Coordinator((0, 1), range(HOSTS))
    coordinator.portions = PORTIONS
    found: dict[str, Any] = {"losses": [], "moved": 0, "error": None}
    try:
        lbfgs = LBFGS(coordinator, **asked.settings)
        for moved in islice(lbfgs.minimize(), asked.evaluations):
            found["losses"].append(lbfgs.loss)
            found["moved"] += moved
    except FourminError as error:
        found["error"] = (error.what, error.why)
    return {
        **found,
        "x": torch.cat([calls.call(host, SHARD, "read", "x") for host in (0, 1)]),
        "lost": coordinator.lost,
        "given": coordinator.given,
        "bytes": coordinator.bytes,
        "rest": [rest[0].tolist() for _, rest in coordinator.terms],
    }
