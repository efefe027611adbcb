"""What a rank does whose worker does not wait for others: it waits, and brings all together."""

from __future__ import annotations

import contextlib
from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fourmin.base.errors import FourminError
from fourmin.log import keys
from fourmin.training.algorithms import calls
from fourmin.training.algorithms.child import Child
from fourmin.training.algorithms.counter import COUNTER, Counter, Done
from fourmin.training.algorithms.method import flat, module_of, spread
from fourmin.training.algorithms.worker import Epoch
from fourmin.training.assemble import Assembly
from fourmin.training.comm.base import CommunicationError
from fourmin.training.comm.fusion import ReductionCounters
from fourmin.training.models.batchnorm import bn_statistics

LOOKS_EVERY = 0.02
"""Seconds between two looks at an epoch that nobody has told the end of."""


class Trained(NamedTuple):
    """What an epoch came to, on all ranks alike."""

    losses: list[float]
    """Of each batch, of the weights before its step."""
    waited: list[float]
    """Seconds for which its worker waited for weights."""


class Side(Protocol):
    """What an algorithm is for a host."""

    bytes: tuple[int, ...]
    """Of the weights that are read and changed together."""

    def gather(self) -> None:
        """The model, and the optimizer's state, become what all workers have come to. All hosts
        call it at the same point, while no worker works.
        """


def host_of(run: Assembly, child: Child) -> Host:
    """The host of one worker, of the kind that the run's algorithm has."""
    kind: type[Host] = getattr(module_of(run.job.configuration), "own_host", Host)
    return kind(run, child)


class Host:
    """The host of one worker. All ranks make one at the same point, before the clock."""

    def __init__(self, run: Assembly, child: Child) -> None:
        """Raises FourminError where the worker cannot begin."""
        self._run, self._child = run, child
        self._lives = True
        self._steps = self._bytes = 0
        config = run.job.configuration
        self._counter = Counter(config.workers)
        if run.place.rank == 0:
            calls.serve(COUNTER, self._counter)
        self._side: Side = module_of(config).host_side(run)
        calls.join(run.place.rank, config.workers, run.job.imports_seconds, worker=False)
        try:
            self._hear()
        except EOFError:
            raise CommunicationError("a worker died before the start") from None

    @property
    def counters(self) -> ReductionCounters:
        """Steps and bytes since the last restart; a bucket is what a server holds."""
        sizes = self._side.bytes
        return ReductionCounters(
            steps=self._steps,
            collectives=0,
            bytes=self._bytes,
            bucket_bytes=sizes,
            bucket_algorithms=(self._run.job.configuration.algorithm,) * len(sizes),
            counted=True,
        )

    @property
    def counts(self) -> bool:
        """Whether the model's statistics are those of a worker that lives."""
        return self._lives

    def train(self, epoch: int, steps: int, data_dir: Path) -> Trained:
        """Have the workers train an epoch, or its first `steps`, on the images in `data_dir`.

        Raises FourminError for what a worker cannot do, CommunicationError where none is left.
        """
        run, rank = self._run, self._run.place.rank
        if rank == 0:
            alone = epoch <= run.job.configuration.warm_start_epochs
            self._counter.begin(epoch, steps, alone=alone)
        statistics = bn_statistics(run.model)
        if self._lives:
            told = flat(statistics) if statistics else torch.empty(0)
            first = run.schedule.steps_before(epoch)
            with contextlib.suppress(OSError):  # one that has died is noticed below
                self._child.line.send(Epoch(epoch, first, data_dir, told))
        for _ in run.heartbeat.through(self._watch(epoch), f"epoch {epoch}"):
            pass
        self._side.gather()
        return self._finish(self._counter.told() if rank == 0 else [], steps)

    def _finish(self, done: Sequence[Done], steps: int) -> Trained:
        """Count an epoch's steps, of which rank 0 knows what they came to."""
        run, rank = self._run, self._run.place.rank
        both = torch.tensor([[one.loss, one.waited] for one in done], dtype=torch.float64)
        both = both if rank == 0 else torch.empty((steps, 2), dtype=torch.float64)
        dist.broadcast(both, src=0)
        self._steps += steps
        if rank == 0:
            self._bytes += sum(one.moved for one in done)
            run.order.update(torch.cat([one.samples for one in done]).numpy())
        performed = run.step.performed + steps
        run.step.load_state_dict({**run.step.state_dict(), "performed": performed})
        losses, waited = both.unbind(1)
        return Trained(losses.tolist(), waited.tolist())

    def _watch(self, epoch: int) -> Iterator[None]:
        """Until the epoch is over here, or everywhere where the worker has died; on rank 0 each
        time that a step is done.
        """
        done = 0
        while self._lives or not calls.call(0, COUNTER, "is_over", epoch):
            if self._lives:
                ready = wait([self._child.line, self._child.process.sentinel], LOOKS_EVERY)
                if self._child.line in ready:
                    with contextlib.suppress(EOFError, OSError):
                        self._hear()
                        return
                if ready:
                    self._lose()
            if self._run.place.rank == 0 and self._counter.progress() > done:
                done = self._counter.progress()
                yield

    def _hear(self) -> None:
        """Take what the worker says: the statistics that it has come to, or why it ends."""
        said = self._child.line.recv()
        if isinstance(said, FourminError):
            raise said
        if isinstance(said, Tensor) and said.numel():
            spread(said, bn_statistics(self._run.model))

    def _lose(self) -> None:
        """The worker was killed: the others get what it had in hand."""
        self._lives = False
        if not calls.call(0, COUNTER, "lost", self._run.place.rank):
            raise CommunicationError("all workers have died", "nobody is left to train")

    def log(self) -> None:
        """Rank 0 tells how stale the changes were, and who was lost."""
        if self._run.place.rank:
            return
        stale = self._counter.staleness or [0]
        counted = Counts(stale)
        self._run.log.point(
            keys.STALENESS,
            {
                "changes": len(self._counter.staleness),
                "mean": float(np.mean(stale)),
                "median": float(np.median(stale)),
                "p95": float(np.percentile(stale, 95)),
                "max": max(counted),
                "lost_workers": self._run.job.configuration.workers - self._counter.living,
                "repeated_steps": self._counter.again,
            },
        )

    def close(self) -> None:
        """End the worker."""
        self._child.line.close()
        self._child.process.join()
        calls.leave()
