"""The counter that hands out an epoch's batches, each to one worker; rank 0 serves it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fourmin.training.algorithms.portions import Portions

COUNTER = "counter"
"""The name under which it is served."""


class Done(NamedTuple):
    """What a worker tells of a step."""

    step: int
    """Its number in the epoch, from 0."""
    loss: float
    """The mean of its batch, of the weights before the step."""
    waited: float
    """Seconds for which the worker waited for hosts."""
    samples: Tensor
    """Of its batch, as they were delivered; (batch,), int64."""
    moved: int
    """Bytes of weights and gradients that went to servers and came from them."""


class Counter:
    """An epoch is so many steps, each of one batch. A step that a worker took and has not told the
    end of is handed out again when the worker is lost; nobody else gets it before.
    """

    def __init__(self, workers: int) -> None:
        self._changed = threading.Condition()
        self._living = set(range(workers))
        self._epoch = 0
        self._alone = False
        self._steps: Portions[Done] = Portions(0, copies=1)
        self.staleness: list[int] = []
        """Of each change of the weights, how many changes by others came between the reading of
        the weights that it follows from and itself.
        """
        self.again = 0
        """Steps that were handed out again."""

    def begin(self, epoch: int, steps: int, *, alone: bool = False) -> None:
        """Hand out an epoch from now on; `alone`: to the first of the living workers."""
        with self._changed:
            self._epoch, self._alone = epoch, alone
            self._steps = Portions(steps, copies=1)
            self._changed.notify_all()

    def take(self, worker: int, ahead: int) -> int | None:
        """A step for `worker`, which has taken `ahead` that it has not begun; None where it is to
        do those first.

        Towards the end of an epoch nobody takes more than a fair share of what is left, so that
        none waits for another long.
        """
        with self._changed:
            left = len(self._steps.waiting)
            fair = left if self._alone else left // len(self._living)
            if ahead > fair or not self._is_asked(worker):
                return None
            return self._steps.give(worker)

    def more(self, worker: int, epoch: int, holds: bool) -> bool | None:
        """Whether there is a step for `worker`; waits until there is one or the epoch is over.

        None where none is left and the worker `holds` what it has done and not told: it is to
        tell that first, since nobody else can.
        """
        with self._changed:
            while True:
                here = self._epoch == epoch
                if here and self._steps.complete:
                    return False
                if here and self._steps.waiting and self._is_asked(worker):
                    return True
                if here and holds:
                    return None
                self._changed.wait()

    def done(self, worker: int, steps: Sequence[Done], staleness: int | None) -> None:
        """Take note of what a worker has done, and how stale the change was that it made of it.

        A worker that was lost is not heard: what it did is done again.
        """
        with self._changed:
            if worker not in self._living:
                return
            for one in steps:
                self._steps.answer(one.step, one)
            if staleness is not None:
                self.staleness.append(staleness)
            self._changed.notify_all()

    def lost(self, worker: int) -> int:
        """A worker has died: hand out again what it had. Returns how many live."""
        with self._changed:
            self._living.discard(worker)
            self.again += self._steps.lose(worker)
            self._changed.notify_all()
            return self.living

    @property
    def living(self) -> int:
        """Workers that were not lost."""
        return len(self._living)

    def progress(self) -> int:
        """Steps of this epoch that are done."""
        with self._changed:
            return self._steps.answered

    def is_over(self, epoch: int) -> bool:
        with self._changed:
            return self._epoch == epoch and self._steps.complete

    def told(self) -> list[Done]:
        """What was told of each step of an epoch that is over, in the order of the batches."""
        with self._changed:
            return self._steps.answers

    def _is_asked(self, worker: int) -> bool:
        return worker in self._living and not (self._alone and worker != min(self._living))
