"""What the processes of tests of Sandblaster do: a regression of the digits, with mishaps."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from fourmin.base.errors import FourminError
from fourmin.training.algorithms.lbfgs import LBFGS
from fourmin.training.algorithms.portions import cut
from fourmin.training.algorithms.sandblaster import Coordinator, Roles, Term, take_part

SAMPLES, PORTION, PENALTY = 200, 16, 5e-4
ROLES = Roles(shards=(0, 1), workers=(1, 2, 3))
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
    """What a run of processes does, and which rank has which mishap."""

    folder: Path
    evaluations: int
    settings: dict[str, Any]
    dies: dict[int, int] = field(default_factory=dict)
    """At which of its calls a rank kills itself."""
    sleeps: dict[int, float] = field(default_factory=dict)
    """Seconds before each answer of a rank."""
    raises: tuple[int, ...] = ()
    roles: Roles = ROLES


def run(asked: Asked, size: int = 4, seconds: float = 120.0) -> dict[str, Any]:
    """Run `size` processes; what the coordinator wrote, and exit codes."""
    asked.folder.mkdir()
    processes = [
        _CONTEXT.Process(target=_process, args=(rank, size, asked)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.1, deadline - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()
    assert None not in codes, f"still running: {codes}"
    return {**torch.load(asked.folder / "found.pt"), "codes": codes}


def _process(rank: int, size: int, asked: Asked) -> None:
    torch.set_num_threads(1)
    calls = 0

    def gradient(weights: Tensor, samples: range) -> Term:
        nonlocal calls
        calls += 1
        if calls == asked.dies.get(rank):
            os.kill(os.getpid(), signal.SIGKILL)
        if rank in asked.raises:
            raise OSError("no such image")
        time.sleep(asked.sleeps.get(rank, 0.0))
        x = weights.clone().requires_grad_()
        term = loss_of(x, samples)
        other = torch.tensor([samples.start, samples.stop])
        return float(term.detach()), torch.autograd.grad(term, x)[0], other

    def coordinate(coordinator: Coordinator) -> dict[str, Any]:
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
            "x": coordinator.read("x"),
            "lost": coordinator.lost,
            "given": coordinator.given,
            "others": [other.tolist() for other in coordinator.others],
        }

    found = take_part(
        rank, size, asked.roles, torch.zeros(640), gradient, cut(SAMPLES, PORTION), coordinate,
        init_method=f"file://{asked.folder}/store", timeout_seconds=30,
    )  # fmt: skip
    if rank == 0:
        torch.save(found, asked.folder / "found.pt")
