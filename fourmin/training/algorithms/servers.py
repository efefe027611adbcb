"""Weights in parts, each held by the host of one rank, that workers read and change by calls."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from fourmin.training.algorithms import calls
from fourmin.training.algorithms.calls import Call
from fourmin.training.algorithms.method import flat, spread
from fourmin.training.assemble import Assembly
from fourmin.training.optim.build import set_learning_rate

WEIGHTS = "weights"
"""The name under which each server serves its part."""


def parts(model: nn.Module, servers: int) -> list[list[nn.Parameter]]:
    """The parameters of each server: whole tensors, the largest first, each to the one that has
    least so far; the same in every process.
    """
    found: list[list[nn.Parameter]] = [[] for _ in range(servers)]
    loads = [0] * servers
    for parameter in sorted(model.parameters(), key=lambda one: -one.numel()):
        least = loads.index(min(loads))
        found[least].append(parameter)
        loads[least] += parameter.numel()
    return found


class Server:
    """One part. Calls come one after the other; `version` counts the changes so far."""

    def __init__(self, parameters: Sequence[nn.Parameter], optimizer: Optimizer) -> None:
        """`optimizer` makes the updates; no other parameter of it has a gradient."""
        self._parameters, self._optimizer = parameters, optimizer
        self._one_by_one = threading.Lock()
        self._version = 0

    def fetch(self) -> tuple[Tensor, int]:
        """The weights as they are, flat, and their version."""
        with self._one_by_one:
            return flat(self._parameters), self._version

    def push(self, gradients: Tensor, rate: float, version: int) -> int:
        """Update the weights from flat gradients, whose pusher knows of `version` changes.

        Returns how many it does not know of.
        """
        with self._one_by_one:
            sizes = [parameter.numel() for parameter in self._parameters]
            for parameter, part in zip(self._parameters, gradients.split(sizes), strict=True):
                parameter.grad = part.view(parameter.shape)
            set_learning_rate(self._optimizer, rate)
            self._optimizer.step()
            for parameter in self._parameters:
                parameter.grad = None
            return self._changed(version)

    def exchange(self, weights: Tensor, share: float, version: int) -> tuple[Tensor, int]:
        """Move towards a worker's weights by a share of the difference, which is returned; and how
        many changes the worker does not know of.
        """
        with self._one_by_one:
            center = flat(self._parameters)
            difference = share * (weights - center)
            spread(center + difference, self._parameters)
            return difference, self._changed(version)

    def _changed(self, version: int) -> int:
        self._version += 1
        return self._version - 1 - version


class Servers:
    """All servers, as a worker knows them: one flat tensor of weights in the order of `parts`."""

    def __init__(self, call: Call, model: nn.Module, servers: int) -> None:
        self._call = call
        self.parameters = parts(model, servers)
        self._versions = [0] * servers

    def fetch(self) -> None:
        """Set the model to the servers' weights."""
        for server, own in enumerate(self.parameters):
            weights, self._versions[server] = self._call(server, WEIGHTS, "fetch")
            spread(weights, own)

    def push(self, gradients: Sequence[Tensor], rate: float) -> int:
        """Push each server its flat gradients; returns how stale they were to the first one."""
        stale: list[int] = []
        for server, own in enumerate(gradients):
            asked = (own, rate, self._versions[server])
            stale.append(self._call(server, WEIGHTS, "push", *asked))
            self._versions[server] += 1
        return stale[0]

    def exchange(self, share: float) -> tuple[list[Tensor], int]:
        """Move the center towards the model by a share of their difference. Returns by what the
        model is to move in turn, a flat tensor for each server, and as `push`.
        """
        moves, stale = [], []
        for server, own in enumerate(self.parameters):
            asked = (flat(own), share, self._versions[server])
            move, late = self._call(server, WEIGHTS, "exchange", *asked)
            moves.append(move)
            stale.append(late)
            self._versions[server] += late + 1
        return moves, stale[0]


class Parts:
    """A host's side: it serves its part, if it has one, and brings all parts together."""

    def __init__(self, run: Assembly) -> None:
        self._run = run
        self._parts = parts(run.model, run.job.configuration.servers)
        self.bytes = tuple(sum(one.nbytes for one in own) for own in self._parts)
        run.reducer.clear()
        if run.place.rank < len(self._parts):
            calls.serve(WEIGHTS, Server(self._parts[run.place.rank], run.optimizer))

    def gather(self) -> None:
        """Every host comes to hold all weights, and what the optimizer keeps of each."""
        for server, own in enumerate(self._parts):
            kept = [t for one in own for t in (one, *self._run.optimizer.state[one].values())]
            values = flat(kept)
            dist.broadcast(values, src=server)
            spread(values, kept)
