"""What the worker of a host does: gradients of the batches that the counter gives it."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from fourmin.base.errors import FourminError
from fourmin.datasets.manifest_image import map_manifest
from fourmin.launch.agent import bind_process
from fourmin.launch.job import Job
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.training.algorithms import calls
from fourmin.training.algorithms.counter import COUNTER, Done
from fourmin.training.algorithms.method import Method, Surroundings, Waited, flat, module_of, spread
from fourmin.training.assemble import WARMUP_STEPS, model_of, precision_of
from fourmin.training.backends import set_backends
from fourmin.training.comm.base import CommunicationError
from fourmin.training.comm.build import build_reducer
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.data import open_data
from fourmin.training.data.loader import Batch
from fourmin.training.evaluate import synthetic_batch
from fourmin.training.models.batchnorm import bn_statistics
from fourmin.training.step import EagerStep, HostUpdate

ALONE = WorkerPlace(0, 1, 0, 1, torch.device("cpu"))
"""No collective is a worker's: hosts have those."""


class Epoch(NamedTuple):
    """What a host tells its worker to take part in."""

    epoch: int
    first: int
    """Number of its first step in the whole run, from 0."""
    data_dir: Path
    statistics: Tensor
    """What `bn_statistics` are at its start, flat."""


def work(job: Job, rank: int, line: Connection) -> None:
    """Say None when all is ready, then take part in epochs until the line is closed, answering each
    with the statistics at its end; or with the error that ends this, a CommunicationError where it
    may not come again.
    """
    bind_process(f"fourmin-w{rank}")
    try:
        kind: type[Worker] = getattr(module_of(job.configuration), "own_worker", Worker)
        worker = kind(job, rank)
        line.send(None)
        with suppress(EOFError):
            while True:
                line.send(worker.train(line.recv()))
    except FourminError as error:
        line.send(error)
    except Exception as error:
        traceback.print_exc()
        line.send(CommunicationError(f"{type(error).__name__}: {error}"))


class Worker:
    """One worker, built and warmed up, and known to all hosts."""

    def __init__(self, job: Job, rank: int) -> None:
        config = job.configuration
        self._job, self._rank = job, rank
        set_backends(config.threads, config.deterministic)
        manifest = map_manifest(job.manifest_image, 0, config.procs_per_node)
        self._schedule = LearningRateSchedule.over(config, int(job.dataset["train_samples"]))
        self._precision = precision_of(job, ALONE)
        self._model = model_of(job, ALONE)
        self._reducer = build_reducer(config, self._model.named_parameters(), ALONE)
        self._loader = open_data(
            config, manifest=manifest, data_dir=job.data_dir, seed=job.seed, device=ALONE.device
        )
        self._loader.warm_up()
        self._warm_up()
        calls.join(rank, config.workers, job.imports_seconds, worker=True)
        self._ask = Waited(calls.call)
        around = Surroundings(config, self._model, self._ask, job.scratch)
        self._method: Method = module_of(config).worker_side(around)
        self._rate = 0.0
        self._step = self._step_by(self._method.optimizer)

    def _step_by(self, optimizer: Optimizer) -> EagerStep:
        buffers, precision = self._reducer.flat_buffers, self._precision
        update = HostUpdate(optimizer, buffers, precision, lambda _: self._rate)
        smoothing = self._job.configuration.label_smoothing
        return EagerStep(self._model, update, self._reducer, precision, smoothing)

    def _warm_up(self) -> None:
        """Take a few steps that change no weight, of every size that comes."""
        self._rate = 0.0
        step = self._step_by(SGD(self._model.parameters(), lr=0.0))
        for _, own in self._job.configuration.stretches():
            batch = synthetic_batch(own.local_batch_size, own.image_size, ALONE.device)
            for _ in range(WARMUP_STEPS):
                step([batch] * own.gradient_accumulation_steps)

    def train(self, told: Epoch) -> Tensor:
        """Take steps until the epoch is over; returns the statistics at its end, flat."""
        statistics = bn_statistics(self._model)
        if statistics:
            spread(told.statistics, statistics)
        self._loader.read_from(told.data_dir)
        # As in any run; each worker draws its own.
        torch.manual_seed((told.epoch << 48) + (self._job.seed << 16) + self._rank)
        held: list[Done] = []
        asked = self._rank, told.epoch
        while (more := self._ask(0, COUNTER, "more", *asked, self._method.holds)) is not False:
            if more is None:
                self._method.flush(self._rate)
                self._tell(held)
                continue
            for step, batches in self._batches(told.epoch):
                self._rate = self._schedule(told.first + step)
                waited, moved = self._ask.seconds, self._ask.bytes
                self._method.before()
                loss, _ = self._step([(batch.images, batch.labels) for batch in batches])
                self._method.after(self._rate)
                samples = torch.cat([batch.indices.reshape(-1) for batch in batches])
                waited, moved = self._ask.seconds - waited, self._ask.bytes - moved
                held.append(Done(step, float(loss), waited, samples, moved))
                if not self._method.holds:
                    self._tell(held)
        return flat(statistics) if statistics else torch.empty(0)

    def _tell(self, held: list[Done]) -> None:
        self._ask(0, COUNTER, "done", self._rank, list(held), self._method.staleness)
        held.clear()

    def _batches(self, epoch: int) -> Iterator[tuple[int, list[Batch]]]:
        """Steps that the counter gives, each with its micro-batches."""
        ahead: deque[int] = deque()

        def taken() -> Iterator[int]:
            while (step := self._ask(0, COUNTER, "take", self._rank, len(ahead))) is not None:
                ahead.append(step)
                yield step

        passes = self._job.configuration.at(epoch).gradient_accumulation_steps
        stream = self._loader.batches_of(epoch, taken())
        while batches := list(islice(stream, passes)):
            yield ahead.popleft(), batches
