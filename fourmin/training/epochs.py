"""Epoch after epoch, on the clock, until the target is reached or the schedule ends."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from fourmin.base.errors import NOT_CONVERGED, FourminError
from fourmin.launch.job import state_file
from fourmin.log import keys
from fourmin.training.algorithms.host import Host
from fourmin.training.assemble import Assembly
from fourmin.training.comm.agreement import assert_same_on_all_ranks, tensor_digest
from fourmin.training.comm.compression import gathered
from fourmin.training.data.loader import READ_AHEAD, Loader
from fourmin.training.evaluate import evaluate
from fourmin.training.kept_state import identity, load_state
from fourmin.training.models.batchnorm import average_bn_statistics
from fourmin.training.ranks import gather, mean_over_ranks
from fourmin.training.state import FEEDBACK, SENT, State, pack
from fourmin.training.trace import Trace


class Epochs:
    """The epochs of one worker's run, after the one that a restart goes on from."""

    def __init__(
        self,
        run: Assembly,
        loader: Loader,
        trace: Trace | None = None,
        host: Host | None = None,
    ) -> None:
        """`host` has the steps done where workers do not wait for each other."""
        self._run = run
        self._host = host
        self._config = run.job.configuration
        self._loader = loader
        self._trace = trace
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="fourmin-digest")
        self.attempted = run.schedule.steps_before(run.job.restart_epoch + 1)
        """Steps of the whole run so far, those that FP16 overflow skipped among them."""
        self.exposed_seconds: list[float] = []
        """Of each step since the last restart, the communication that computation did not hide."""

    def train(self) -> bool:
        """Train and evaluate; whether the quality target was reached. All ranks agree on it.

        Raises FourminError when training diverges.
        """
        run, config = self._run, self._config
        if run.job.segments:
            return self._replay(run.job.segments)
        for epoch in range(run.job.restart_epoch + 1, config.max_epochs + 1):
            left = self._steps_left()
            last = left is not None and left <= run.schedule.steps_of(epoch)
            evaluated = last or run.benchmark.evaluates_after(epoch, config.eval_offset)
            self._train_epoch(epoch, evaluated=evaluated and not run.job.replay)
            if run.job.replay:
                return False
            if evaluated and self._evaluate(epoch) >= run.benchmark.quality_target:
                return True
            if last:
                return False
            if evaluated and epoch < config.max_epochs:
                self._save(epoch)
        return False

    def _replay(self, segments: Sequence[int]) -> bool:
        """Train each of these epochs, or its first steps, from the state before it, and evaluate
        what the last one came to.
        """
        run, last = self._run, segments[-1]
        whole = run.job.segment_steps is None
        for epoch in segments:
            if epoch > 1:
                self._become(epoch - 1)
            self.attempted = (epoch - 1) * run.schedule.steps_per_epoch
            self._train_epoch(epoch, evaluated=whole and epoch == last)
        if not whole:
            self._become(last)
        return self._evaluate(last) >= run.benchmark.quality_target

    def _become(self, epoch: int) -> None:
        """The kept state after an epoch."""
        run = self._run
        assert run.job.starts is not None
        path = state_file(run.job.starts, run.job.campaign, run.job.run, epoch)
        load_state(path, identity(run.job, epoch), run.model, run.optimizer, run.step)

    def _steps_left(self) -> int | None:
        """Steps until a limit, or None where there is none."""
        limit, most = self._config.max_steps, self._run.job.segment_steps
        left = [] if limit is None else [limit - self.attempted]
        return min([*left, *([] if most is None else [most])], default=None)

    def close(self) -> None:
        """Throw away what was made ready for epochs that do not come."""
        if self._trace:
            self._trace.close()
        self._loader.close()
        self._beside.shutdown()

    def _train_epoch(self, epoch: int, evaluated: bool) -> None:
        run, config = self._run, self._config.at(epoch)
        run.log.start(keys.EPOCH_START, None, epoch_num=epoch)
        began = time.perf_counter()
        steps, left = run.schedule.steps_of(epoch), self._steps_left()
        if left is not None:
            steps = min(steps, left)
        if self._host:
            means, exposed_seconds = self._host.train(epoch, steps, self._loader.source.data_dir)
        else:
            means, exposed_seconds = self._take_steps(epoch, steps, evaluated)
        self.attempted += steps
        self.exposed_seconds.extend(exposed_seconds)
        seconds = time.perf_counter() - began
        images = steps * config.global_batch_size
        run.log.end(keys.EPOCH_STOP, None, epoch_num=epoch, samples_count=images)
        if epoch == 1:
            run.log.point(keys.STEP_LOSS, _finite(means[: keys.LOGGED_STEPS]))
        finite = [loss for loss in means if math.isfinite(loss)]
        performed = run.step.performed  # brings the loss scale up to date too
        run.log.point(
            keys.TRACKED_STATS,
            {
                "throughput": images / seconds,
                "train_loss": math.fsum(finite) / len(finite) if finite else None,
                "optimizer_steps": performed,
                "skipped_steps": run.precision.skipped_steps,
                "loss_scale": run.precision.loss_scale,
                "learning_rate": run.schedule(max(0, performed - 1)),
                "exposed_ms_median": float(np.median(exposed_seconds)) * 1000,
            },
            epoch_num=epoch,
        )
        self._check_finite(epoch, means)
        if evaluated or run.states is not None:
            average_bn_statistics(run.model, not self._host or self._host.counts)
        if run.states is not None:
            run.states.settle()
            first = _finite(means[: keys.LOGGED_STEPS])
            run.states.take(epoch, first, run.model, run.optimizer, run.step)

    def _take_steps(
        self, epoch: int, steps: int, evaluated: bool
    ) -> tuple[list[float], list[float]]:
        """The first steps of an epoch, with all ranks at each. Returns their losses, means over all
        ranks, and the seconds of communication of each that computation did not hide.
        """
        run, config = self._run, self._config.at(epoch)
        if run.reducer.compression:
            run.reducer.compression.begin(config, epoch)
        # Dropout is the only random thing that is left. Each rank draws its own, anew in each
        # epoch, so that a restart draws the same.
        torch.manual_seed((epoch << 48) + (run.job.seed << 16) + run.place.rank)
        losses: list[Tensor] = []
        consumed: list[Tensor] = []
        exposed = []
        batches = run.heartbeat.through(self._loader.train_epoch(epoch), f"epoch {epoch}")
        for step in range(steps):
            with self._trace.step() if self._trace else nullcontext():
                micro_batches = list(islice(batches, config.gradient_accumulation_steps))
                if evaluated and steps - step <= READ_AHEAD:
                    self._loader.begin_evaluation(epoch)
                consumed.extend(batch.indices for batch in micro_batches)
                loss, waited = run.step([(batch.images, batch.labels) for batch in micro_batches])
            losses.append(loss)
            exposed.append(waited)
        if run.pipeline:
            run.pipeline.share()
        means = mean_over_ranks(torch.stack(losses), run.place)
        self._digest_order(consumed, config.global_batch_size)
        return means, [waited.seconds() for waited in exposed]

    def _digest_order(self, consumed: Iterable[Tensor], batch: int) -> None:
        """Add what all ranks really consumed in this epoch to the digest of the data order."""
        place = self._run.place
        own = torch.cat([indices.reshape(-1) for indices in consumed]).to(place.device)
        shares = gather(own, place)
        if place.rank == 0:
            self._run.order.update_from_ranks([share.cpu().numpy() for share in shares], batch)

    def _check_finite(self, epoch: int, means: list[float]) -> None:
        """Raise FourminError when training has diverged.

        With FP16 a loss may overflow now and then, and its step is skipped; an epoch of nothing
        else has diverged too.
        """
        bad = [step for step, loss in enumerate(means, start=1) if not math.isfinite(loss)]
        if bad and (self._run.precision.name != "fp16" or len(bad) == len(means)):
            raise FourminError(
                f"the loss is not finite in step {bad[0]} of epoch {epoch}",
                "training diverged",
                "a lower base_learning_rate, or a longer warmup",
                exit_code=NOT_CONVERGED,
            )

    def _evaluate(self, epoch: int) -> float:
        run = self._run
        run.log.start(keys.EVAL_START, None, epoch_num=epoch)
        weights = [parameter.detach().cpu() for parameter in run.model.parameters()]
        # Hashed beside the evaluation, which would wait a tenth of a second for ResNet-50's.
        digest = self._beside.submit(tensor_digest, weights)
        what = f"the evaluation after epoch {epoch}"
        batches = run.heartbeat.through(self._loader.evaluate(epoch), what)
        expected = int(run.job.dataset["eval_samples"])
        correct, counted = evaluate(run.model, batches, run.precision, expected)
        assert_same_on_all_ranks(f"the weights after epoch {epoch}", digest.result())
        run.log.point(keys.WEIGHTS_DIGEST, digest.result(), epoch_num=epoch)
        accuracy = correct / counted
        run.log.point(
            keys.EVAL_ACCURACY,
            accuracy,
            epoch_num=epoch,
            samples_count=counted,
            correct_count=correct,
        )
        run.log.end(keys.EVAL_STOP, None, epoch_num=epoch)
        if run.states is not None:
            run.states.settle()
        return accuracy

    def _save(self, epoch: int) -> None:
        """Begin a checkpoint; all ranks bring to it what each alone holds."""
        run, feedback = self._run, None
        if run.checkpoints.writes and run.reducer.compression:
            feedback = gathered(run.reducer.compression, run.place)

        def state() -> State:
            packed = pack(run.model, run.optimizer, run.step, run.order)
            if feedback is None or not run.reducer.compression:
                return packed
            sent = torch.tensor(run.reducer.compression.bytes)
            return {**packed, FEEDBACK: feedback, SENT: sent}

        run.checkpoints.save(epoch, state)


def _finite(values: list[float]) -> list[float | None]:
    """`values` for the log, where JSON has no word for what is not finite."""
    return [value if math.isfinite(value) else None for value in values]
