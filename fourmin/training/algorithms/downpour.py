"""Downpour SGD: Dean et al. 2012, "Large Scale Distributed Deep Networks", algorithm 7.1.

A worker computes gradients on weights that it fetches before each `n_fetch` of its steps. In
between it moves its copy by -rate times the gradient. After each `n_push` steps it pushes the sum
of their gradients; a server updates its part of the weights from them at once, by the run's
optimizer, which in the paper is Adagrad.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import SGD

from fourmin.training.algorithms.method import Method, Surroundings, flat
from fourmin.training.algorithms.servers import Parts, Servers

host_side = Parts


class Downpour(Method):
    def __init__(self, around: Surroundings) -> None:
        self._config = around.config
        self.optimizer = SGD(around.model.parameters(), lr=0.0, foreach=True)
        self._servers = Servers(around.call, around.model, around.config.servers)
        self._accrued: list[Tensor] | None = None
        self._steps = 0

    def before(self) -> None:
        if self._steps % self._config.n_fetch == 0:
            self._servers.fetch()

    def after(self, rate: float) -> None:
        own = [
            flat([p.grad for p in part if p.grad is not None]) for part in self._servers.parameters
        ]
        if self._accrued is not None:
            torch._foreach_add_(self._accrued, own)
        else:
            self._accrued = own
        self._steps += 1
        self.holds, self.staleness = True, None
        if self._steps % self._config.n_push == 0:
            self.flush(rate)

    def flush(self, rate: float) -> None:
        if self._accrued is not None:
            self.staleness = self._servers.push(self._accrued, rate)
        self._accrued, self.holds = None, False


worker_side = Downpour
