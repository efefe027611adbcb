"""Elastic averaging SGD: Zhang, Choromanska and LeCun 2015, arXiv 1412.6651, algorithm 1.

A worker trains weights x of its own. Every `elastic_period` of its steps it and the center c move
by a share of their difference, x - a (x - c) and c + a (x - c), where a is `elastic_rate` over the
number of workers; the gradient of that step is that of x before it moved. A momentum is the
worker's own. What is evaluated, and kept in checkpoints, is the center.
"""

from __future__ import annotations

from torch import Tensor

from fourmin.training.algorithms.method import Method, Surroundings, flat, spread
from fourmin.training.algorithms.servers import Parts, Servers
from fourmin.training.optim.build import build_optimizer

host_side = Parts


class ElasticAveraging(Method):
    def __init__(self, around: Surroundings) -> None:
        config = around.config
        self.optimizer = build_optimizer(around.model, config)
        self._servers = Servers(around.call, around.model, config.servers)
        self._share = config.elastic_rate / config.workers
        self._period, self._steps = config.elastic_period, 0
        self._moves: list[Tensor] = []

    def before(self) -> None:
        if not self._steps:
            self._servers.fetch()
        self._moves, self.staleness = [], None
        if self._steps and self._steps % self._period == 0:
            self._moves, self.staleness = self._servers.exchange(self._share)
        self._steps += 1

    def after(self, rate: float) -> None:
        for move, own in zip(self._moves, self._servers.parameters, strict=False):
            spread(flat(own) - move, own)


worker_side = ElasticAveraging
