"""One run from the first import to the last evaluation, as one worker sees it.

The order is the rule: everything that does not need the data happens between init_start and
init_stop; a barrier; the command records the start; run_start; and only then is the dataset
touched. Rank 0 alone writes the event log. A run that was cut off goes on in the same log, from its
last checkpoint, and all that takes is on the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from fourmin.base.errors import NOT_CONVERGED, FourminError
from fourmin.datasets.manifest import Manifest
from fourmin.launch.control import ControlClient
from fourmin.launch.job import Job
from fourmin.log import keys
from fourmin.log.writer import EventLogWriter
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.ruleset import load_ruleset
from fourmin.system.boot import boot_digest
from fourmin.training.backends import keep_freed_memory, set_backends
from fourmin.training.comm import process_group
from fourmin.training.comm.agreement import (
    assert_known_sum,
    assert_same_on_all_ranks,
    tensor_digest,
)
from fourmin.training.comm.build import build_reducer
from fourmin.training.data import open_data
from fourmin.training.data.order import OrderDigest
from fourmin.training.data.staging import refuse_shared_stage, remove_staged, stage_dataset
from fourmin.training.energy import RunEnergy
from fourmin.training.evaluate import evaluate
from fourmin.training.fast.choose import build_step, refuse_another_step
from fourmin.training.models import build_model
from fourmin.training.models.batchnorm import apply_bn_span, average_bn_statistics
from fourmin.training.models.init import initialize, weights_digest
from fourmin.training.optim.build import build_optimizer
from fourmin.training.precision import Precision
from fourmin.training.progress import Progress
from fourmin.training.resume import Checkpoints
from fourmin.training.run_log import (
    OWN,
    log_clocks,
    log_communication,
    log_hyperparameters,
    log_submission,
)
from fourmin.training.state import ORDER, State, pack, shared, unpack
from fourmin.training.step import EagerStep

WARMUP_STEPS = 2


class Session:
    """One worker's part in one run."""

    def __init__(self, job: Job, control: ControlClient) -> None:
        """Take the job; nothing happens before `run`."""
        self._job = job
        self._control = control
        self._config = job.configuration
        self._benchmark = load_ruleset(job.ruleset).benchmark(self._config.benchmark)
        self._train_samples = int(job.dataset["train_samples"])
        self._eval_samples = int(job.dataset["eval_samples"])
        self._steps_per_epoch = self._config.steps_per_epoch(self._train_samples)
        self._schedule = LearningRateSchedule.from_config(
            self._config, max(1, self._steps_per_epoch)
        )
        self._order = OrderDigest()
        self._attempted = 0
        self._staged: Path | None = None
        self._exposed_seconds: list[float] = []

    def run(self) -> None:
        """Train to the target or to the end of the schedule.

        Raises FourminError for what cannot go on; every other exception is a fault.
        """
        set_backends(self._config.threads)
        self._place = process_group.init_process_group(
            self._config.device, self._config.collective_timeout_seconds
        )
        self._progress = Progress(
            self._control if self._place.rank == 0 else None,
            self._config.collective_timeout_seconds,
        )
        try:
            assert_known_sum()
            if self._job.stage is not None:
                refuse_shared_stage(self._job, self._job.stage, self._place)
            again = self._job.restart > 0
            self._log = (
                EventLogWriter(self._job.events_log, resume=again)
                if self._place.rank == 0
                else None
            )
            if again:
                self._restart()
            else:
                self._initialize()
            self._train()
        finally:
            process_group.destroy()
            if self._staged is not None:
                remove_staged(self._staged, self._place)

    # Before the clock.

    def _initialize(self) -> None:
        log = self._log
        if log:
            log_submission(log, self._job)
            log.start(keys.INIT_START, None)
            log_hyperparameters(log, self._job, self._schedule)
        self._prepare()
        digest = weights_digest(self._model)
        assert_same_on_all_ranks("the initial weights", digest)
        if log:
            log.point(keys.INITIAL_WEIGHTS_DIGEST, digest, namespace=OWN)
        self._barrier()
        if self._place.rank == 0:
            self._control.ask_to_start()
        self._barrier()
        self._started_ns = time.time_ns()
        if log:
            log.end(keys.INIT_STOP, None)
        self._energy.start()
        if log:
            log.start(keys.RUN_START, None, boot=boot_digest())

    def _prepare(self) -> None:
        """Model, optimizer and step, with the initial weights; nothing is compiled after it."""
        config = self._config
        self._build()
        # On a CPU a warm-up buys time alone, and a replay is not timed.
        if not (self._job.replay and config.device == "cpu"):
            self._warm_up()
            keep_freed_memory(config.device, config.procs_per_node)
        initialize(self._model, self._job.seed, config.initialization, config.zero_last_gamma)
        self._checkpoints = Checkpoints(
            self._job.checkpoints, self._place, self._log, writes=self._is_saved()
        )

    def _build(self) -> None:
        config, place = self._config, self._place
        self._precision = Precision(
            config.precision, place.device, config.loss_scale, config.loss_scale_growth_interval
        )
        self._model = build_model(
            config.model,
            num_classes=int(self._job.dataset["classes"]),
            bn_momentum=config.bn_momentum,
            bn_epsilon=config.bn_epsilon,
        ).to(device=place.device, memory_format=torch.channels_last)
        apply_bn_span(
            self._model,
            config.bn_span,
            place.world_size,
            place.rank,
            timeout=timedelta(seconds=config.collective_timeout_seconds),
        )
        self._model.train()
        self._reducer = build_reducer(config, self._model.named_parameters(), place)
        self._energy = RunEnergy(place)
        self._new_step()

    def _new_step(self) -> None:
        """An optimizer and a step without history."""
        self._optimizer = build_optimizer(self._model, self._config)
        self._step = build_step(
            self._config.step,
            self._model,
            self._optimizer,
            self._reducer,
            self._precision,
            self._schedule,
            self._config.label_smoothing,
            total_steps=max(1, self._config.max_epochs * self._steps_per_epoch),
            growth_interval=self._config.loss_scale_growth_interval,
            world_size=self._place.world_size,
            say=refuse_another_step,
        )

    def _warm_up(self) -> None:
        """Steps on synthetic images, so that no kernel is chosen or compiled on the clock.

        What they change is made anew after them: weights and statistics by `initialize`,
        optimizer, schedule and loss scale here, random state by the seed.
        """
        config, device = self._config, self._place.device
        shape = (config.local_batch_size, 3, config.image_size, config.image_size)
        images = torch.zeros(shape, device=device).to(memory_format=torch.channels_last)
        labels = torch.zeros(config.local_batch_size, dtype=torch.int64, device=device)
        for _ in range(WARMUP_STEPS):
            began = time.perf_counter()
            self._step([(images, labels)] * config.gradient_accumulation_steps)
        self._progress.took(time.perf_counter() - began)
        self._precision = Precision(
            config.precision, device, config.loss_scale, config.loss_scale_growth_interval
        )
        if isinstance(self._step, EagerStep):
            self._new_step()
        else:
            # Its kernels and graphs are what the warm-up was for: they stay.
            self._step.reset(self._precision)

    # On the clock.

    def _restart(self) -> None:
        """Go on after the epoch that the job names, in the log that the run began."""
        job, log = self._job, self._log
        if log:
            again = {"restart": job.restart, "epoch": job.restart_epoch}
            log.point(keys.RUN_RESTART, again, namespace=OWN, boot=boot_digest())
            log.sync()
        self._prepare()
        if job.restart_epoch:
            self._go_on_after(job.restart_epoch)
        self._barrier()
        self._started_ns = time.time_ns()

    def _train(self) -> None:
        config, log = self._config, self._log
        self._open_data()
        reached = False
        for epoch in range(self._job.restart_epoch + 1, config.max_epochs + 1):
            self._train_epoch(epoch)
            if self._job.replay:
                break
            last = self._steps_left() == 0
            evaluated = last or self._benchmark.evaluates_after(epoch, config.eval_offset)
            if evaluated:
                reached = self._evaluate(epoch) >= self._benchmark.quality_target
            if reached or last:
                break
            if evaluated and epoch < config.max_epochs:
                self._checkpoints.save(epoch, self._state)
        if log:
            log.end(keys.RUN_STOP, None, status=keys.SUCCESS if reached else keys.ABORTED)
        self._progress.rest()
        joules = self._energy.stop()
        exposed = self._exposed_on_all_ranks()
        started = self._on_all_ranks([self._started_ns])[:, 0]
        if log:
            log_clocks(log, self._job, started, exposed)
            log.point(keys.DATA_ORDER_DIGEST, self._order.hexdigest(), namespace=OWN,
                      samples_count=self._order.count)  # fmt: skip
            log_communication(log, self._reducer.counters, exposed, self._attempted)
        self._energy.log(log, joules)
        if log:
            log.sync()
        self._checkpoints.close()

    def _open_data(self) -> None:
        job, place = self._job, self._place
        if job.stage is not None:
            self._staged = stage_dataset(job, job.stage, place, self._log)
        self._loader = open_data(
            self._config,
            manifest=Manifest.load(job.manifest),
            data_dir=self._staged or job.data_dir,
            seed=job.seed,
            device=place.device,
            rank=place.rank,
            world_size=place.world_size,
        )

    def _steps_left(self) -> int | None:
        """Steps until `max_steps`, or None where nothing limits them."""
        limit = self._config.max_steps
        return None if limit is None else limit - self._attempted

    def _train_epoch(self, epoch: int) -> None:
        log = self._log
        if log:
            log.start(keys.EPOCH_START, None, epoch_num=epoch)
        # Dropout is the only random thing that is left. Each rank draws its own, anew in each
        # epoch, so that a restart draws the same.
        torch.manual_seed((epoch << 48) + (self._job.seed << 16) + self._place.rank)
        began = time.perf_counter()
        losses: list[Tensor] = []
        consumed: list[Tensor] = []
        exposed = []
        batches = self._progress.through(self._loader.train_epoch(epoch), f"epoch {epoch}")
        left = self._steps_left()
        steps = self._steps_per_epoch if left is None else min(left, self._steps_per_epoch)
        for _ in range(steps):
            micro_batches = list(islice(batches, self._config.gradient_accumulation_steps))
            consumed.extend(batch.indices for batch in micro_batches)
            loss, hidden = self._step([(batch.images, batch.labels) for batch in micro_batches])
            losses.append(loss)
            exposed.append(hidden)
        self._attempted += steps
        means = self._mean_over_ranks(torch.stack(losses))
        waited = [one.seconds() for one in exposed]
        self._exposed_seconds.extend(waited)
        seconds = time.perf_counter() - began
        self._digest_order(consumed)
        if log:
            images = steps * self._config.global_batch_size
            log.end(keys.EPOCH_STOP, None, epoch_num=epoch, samples_count=images)
            if epoch == 1:
                log.point(keys.STEP_LOSS, _finite(means[: keys.LOGGED_STEPS]), namespace=OWN)
            log.point(
                keys.TRACKED_STATS,
                {
                    "throughput": images / seconds,
                    "train_loss": _finite([math.fsum(means) / len(means)])[0],
                    "optimizer_steps": self._step.performed,
                    "skipped_steps": self._precision.skipped_steps,
                    "loss_scale": self._precision.loss_scale,
                    "learning_rate": self._schedule(max(0, self._step.performed - 1)),
                    "exposed_ms_median": float(np.median(waited)) * 1000,
                },
                epoch_num=epoch,
            )
        self._check_finite(epoch, means)

    def _check_finite(self, epoch: int, means: list[float]) -> None:
        """Raise FourminError when training has diverged.

        With FP16 a loss may overflow now and then, and its step is skipped; an epoch of nothing
        else has diverged too.
        """
        bad = [step for step, loss in enumerate(means, start=1) if not math.isfinite(loss)]
        if bad and (self._precision.name != "fp16" or len(bad) == len(means)):
            raise FourminError(
                f"the loss is not finite in step {bad[0]} of epoch {epoch}",
                "training diverged",
                "a lower base_learning_rate, or a longer warmup",
                exit_code=NOT_CONVERGED,
            )

    def _evaluate(self, epoch: int) -> float:
        log = self._log
        average_bn_statistics(self._model)
        digest = tensor_digest(self._model.parameters())
        assert_same_on_all_ranks(f"the weights after epoch {epoch}", digest)
        if log:
            log.point(keys.WEIGHTS_DIGEST, digest, namespace=OWN, epoch_num=epoch)
            log.start(keys.EVAL_START, None, epoch_num=epoch)
        what = f"the evaluation after epoch {epoch}"
        batches = self._progress.through(self._loader.evaluate(), what)
        correct, counted = evaluate(self._model, batches, self._precision, self._eval_samples)
        accuracy = correct / counted
        if log:
            log.point(
                keys.EVAL_ACCURACY,
                accuracy,
                epoch_num=epoch,
                samples_count=counted,
                correct_count=correct,
            )
            log.end(keys.EVAL_STOP, None, epoch_num=epoch)
        return accuracy

    def _is_saved(self) -> bool:
        """Whether the run can come to an epoch after which it is evaluated and goes on."""
        config = self._config
        evaluated = self._benchmark.scheduled(config.max_epochs - 1, config.eval_offset)
        whole = None if config.max_steps is None else config.max_steps / self._steps_per_epoch
        return config.checkpoints and any(whole is None or epoch < whole for epoch in evaluated)

    def _state(self) -> State:
        return pack(self._model, self._optimizer, self._step, self._order)

    def _go_on_after(self, epoch: int) -> None:
        """Become, on all ranks, what the checkpoint after `epoch` holds."""
        saved = self._checkpoints.load(epoch)
        if saved is not None:
            parts = [bytes(part) for part in saved[ORDER].tolist()]
            self._order.go_on(
                self._job.seed, self._train_samples, self._config.global_batch_size, parts
            )
        state = shared(saved, self._state(), self._place)
        unpack(state, self._model, self._optimizer, self._step)
        self._attempted = epoch * self._steps_per_epoch
        digest = tensor_digest(self._model.parameters())
        assert_same_on_all_ranks("the weights of the checkpoint", digest)

    # Small collectives.

    def _barrier(self) -> None:
        if self._place.device.type == "cuda":
            dist.barrier(device_ids=[self._place.local_rank])
        else:
            dist.barrier()

    def _mean_over_ranks(self, losses: Tensor) -> list[float]:
        dist.all_reduce(losses)
        values: list[float] = (losses / self._place.world_size).tolist()
        return values

    def _digest_order(self, consumed: Iterable[Tensor]) -> None:
        """Add what all ranks really consumed in this epoch to the digest of the data order."""
        own = torch.cat([indices.reshape(-1) for indices in consumed]).to(self._place.device)
        shares = [torch.empty_like(own) for _ in range(self._place.world_size)]
        dist.all_gather(shares, own)
        if self._place.rank == 0:
            self._order.update_from_ranks(
                [share.cpu().numpy() for share in shares], self._config.global_batch_size
            )

    def _exposed_on_all_ranks(self) -> NDArray[np.float64]:
        """Exposed communication time in milliseconds: a row for each rank, a column a step."""
        return self._on_all_ranks(self._exposed_seconds) * 1000

    def _on_all_ranks(self, values: Sequence[float]) -> NDArray[np.float64]:
        """What every rank has: a row for each rank."""
        own = torch.tensor(values, dtype=torch.float64, device=self._place.device)
        rows = [torch.empty_like(own) for _ in range(self._place.world_size)]
        dist.all_gather(rows, own)
        return torch.stack(rows).cpu().numpy()


def _finite(values: list[float]) -> list[float | None]:
    """`values` for the log, where JSON has no word for what is not finite."""
    return [value if math.isfinite(value) else None for value in values]
