"""Sandblaster L-BFGS: Dean et al. 2012, "Large Scale Distributed Deep Networks", section 4.2.

A portion is a batch of the first epoch, with its augmentation, dropout and batch statistics: the
loss must be the same function each time. An evaluation of the loss on all portions is an epoch, and
what is evaluated after an epoch are the weights of its loss, with the mean of the portions' batch
statistics. A restart goes on from them without the pairs of before.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD

from fourmin.base.errors import NOT_CONVERGED, FourminError
from fourmin.launch.job import Job
from fourmin.training.algorithms import calls
from fourmin.training.algorithms.child import Child
from fourmin.training.algorithms.counter import Done
from fourmin.training.algorithms.host import Host, Trained
from fourmin.training.algorithms.lbfgs import LBFGS
from fourmin.training.algorithms.method import Method, Surroundings, flat, spread
from fourmin.training.algorithms.shards import REPLICA, SHARD, Coordinator, Replica, Shard, Term
from fourmin.training.algorithms.worker import Epoch, Worker
from fourmin.training.assemble import Assembly
from fourmin.training.models.batchnorm import bn_statistics
from fourmin.training.optim.build import build_optimizer
from fourmin.training.ranks import gloo_group

LONGEST_EVALUATION = timedelta(days=30)
"""For which the other hosts wait."""


class Slices:
    """A host's side: its slice of the weights, if it has one, and all of them together."""

    def __init__(self, run: Assembly) -> None:
        self._run = run
        self._parameters = list(run.model.parameters())
        slices = flat(self._parameters).tensor_split(run.job.configuration.servers)
        self.bytes = tuple(one.nbytes for one in slices)
        self._shard = Shard()
        if run.place.rank < len(slices):
            calls.serve(SHARD, self._shard)

    def begin(self) -> None:
        """The weights to start from are those that the model has now."""
        slices = flat(self._parameters).tensor_split(len(self.bytes))
        if self._run.place.rank < len(slices):
            self._shard.put("x", slices[self._run.place.rank])

    def gather(self) -> None:
        """The model becomes what was evaluated last, with rank 0's statistics."""
        whole = flat(self._parameters)
        for server, own in enumerate(whole.tensor_split(len(self.bytes))):
            if self._run.place.rank == server:
                own.copy_(self._shard.read(self._shard.at))
            dist.broadcast(own, src=server)
        spread(whole, self._parameters)
        for statistic in bn_statistics(self._run.model):
            dist.broadcast(statistic, src=0)


class Sandblaster(Host):
    """A host, which on rank 0 coordinates too."""

    def __init__(self, run: Assembly, child: Child) -> None:
        super().__init__(run, child)
        config = run.job.configuration
        self._together = gloo_group(timeout=LONGEST_EVALUATION)
        self._coordinator = Coordinator(range(config.servers), range(config.workers))
        lbfgs = LBFGS(self._coordinator, history=config.lbfgs_pairs, step=config.base_learning_rate)
        self._evaluations = lbfgs.minimize()

    def train(self, epoch: int, steps: int, data_dir: Path) -> Trained:
        """Evaluate the loss once, on the first `steps` portions: on all, but in a last epoch that
        is cut short.

        Raises FourminError where no worker is left, or no step leads to a lower loss.
        """
        if not self._steps:
            assert isinstance(self._side, Slices)
            self._side.begin()
            with contextlib.suppress(EOFError, OSError):  # a dead one is noticed by its calls
                self._child.line.send(Epoch(epoch, 0, data_dir, torch.empty(0)))
                self._hear()
            dist.barrier()
        done = self._evaluate(epoch, steps) if self._run.place.rank == 0 else []
        dist.barrier(group=self._together)
        self._side.gather()
        return self._finish(done, steps)

    def _evaluate(self, epoch: int, steps: int) -> list[Done]:
        coordinator = self._coordinator
        beats = self._run.heartbeat.through(count(), f"epoch {epoch}")
        coordinator.answered = partial(next, beats)
        coordinator.portions = steps
        given, moved = coordinator.given, coordinator.bytes
        if next(self._evaluations, None) is None:
            raise FourminError(
                "no step leads to a lower loss",
                "L-BFGS has come to a minimum of the training loss before the target",
                "another seed, or label_smoothing",
                exit_code=NOT_CONVERGED,
            )
        for worker in coordinator.lost:
            self._counter.lost(worker)
        self._counter.again += coordinator.given - given - steps
        self._bytes += coordinator.bytes - moved
        statistics = [rest[0] for _, rest in coordinator.terms]
        spread(torch.stack(statistics).mean(0), bn_statistics(self._run.model))
        return [
            Done(portion, loss * self._run.schedule.steps_of(epoch), 0.0, rest[1], 0)
            for portion, (loss, rest) in enumerate(coordinator.terms)
        ]


class Still(Method):
    """A step that computes gradients and changes no weight."""

    def __init__(self, around: Surroundings) -> None:
        self.optimizer = SGD(around.model.parameters(), lr=0.0)


class PortionWorker(Worker):
    """Makes the gradients of portions for whoever calls."""

    def __init__(self, job: Job, rank: int) -> None:
        super().__init__(job, rank)
        config = job.configuration
        groups = build_optimizer(self._model, config).param_groups
        decays = {one: group["weight_decay"] for group in groups for one in group["params"]}
        self._decays = [(one, decays[one]) for one in self._model.parameters()]
        self._portions = self._schedule.steps_of(1)
        for module in self._model.modules():
            if isinstance(module, _BatchNorm):
                module.momentum = 1.0  # the statistics are the batch's
        calls.serve(REPLICA, Replica(self._term, range(config.servers)))

    def train(self, told: Epoch) -> Tensor:
        """Know where the images are: asked once, before the first portion."""
        self._loader.read_from(told.data_dir)
        return torch.empty(0)

    def _term(self, weights: Tensor, portion: int) -> Term:
        """A batch's share of the mean loss with the penalty of the weight decay; what it says of
        its batch: statistics, and samples.
        """
        parameters = [parameter for parameter, _ in self._decays]
        spread(weights.float(), parameters)
        torch.manual_seed((portion << 32) + self._job.seed)
        batches = list(self._loader.batches_of(1, [portion]))
        mean, _ = self._step([(batch.images, batch.labels) for batch in batches])
        with torch.no_grad():
            penalty = sum(decay / 2 * one.double().square().sum() for one, decay in self._decays)
            gradients = [one.grad + decay * one for one, decay in self._decays]
        samples = torch.cat([batch.indices.reshape(-1) for batch in batches])
        return Term(
            float(mean + penalty) / self._portions,
            flat(gradients) / self._portions,
            (flat(bn_statistics(self._model)), samples),
        )


host_side, worker_side = Slices, Still
own_host, own_worker = Sandblaster, PortionWorker
