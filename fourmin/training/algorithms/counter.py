"""The counter that hands out an epoch's batches, each to one worker; rank 0 serves it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

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
        self._waiting: deque[int] = deque()
        self._taken: dict[int, list[int]] = {}
        """By worker, the steps that it took and has not told the end of."""
        self._done: dict[int, Done] = {}
        self._steps = 0
        self.staleness: list[int] = []
        """Of each change of the weights, how many changes by others came between the reading of
        the weights that it follows from and itself.
        """
        self.again = 0
        """Steps that were handed out again."""

    def begin(self, epoch: int, steps: int, *, alone: bool = False) -> None:
        """Hand out an epoch from now on; `alone`: to the first of the living workers."""
        with self._changed:
            self._epoch, self._alone, self._steps = epoch, alone, steps
            self._waiting = deque(range(steps))
            self._taken = {worker: [] for worker in self._living}
            self._done = {}
            self._changed.notify_all()

    def take(self, worker: int, ahead: int) -> int | None:
        """A step for `worker`, which has taken `ahead` that it has not begun; None where it is to
        do those first.

        Towards the end of an epoch nobody takes more than a fair share of what is left, so that
        none waits for another long.
        """
        with self._changed:
            fair = len(self._waiting) if self._alone else len(self._waiting) // len(self._living)
            if not self._waiting or ahead > fair or not self._is_asked(worker):
                return None
            step = self._waiting.popleft()
            self._taken[worker].append(step)
            return step

    def more(self, worker: int, epoch: int, holds: bool) -> bool | None:
        """Whether there is a step for `worker`; waits until there is one or the epoch is over.

        None where none is left and the worker `holds` what it has done and not told: it is to
        tell that first, since nobody else can.
        """
        with self._changed:
            while True:
                here = self._epoch == epoch
                if here and self._over():
                    return False
                if here and self._waiting and self._is_asked(worker):
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
                self._taken[worker].remove(one.step)
                self._done[one.step] = one
            if staleness is not None:
                self.staleness.append(staleness)
            self._changed.notify_all()

    def lost(self, worker: int) -> int:
        """A worker has died: hand out again what it had. Returns how many live."""
        with self._changed:
            self._living.discard(worker)
            again = self._taken.pop(worker, [])
            self.again += len(again)
            self._waiting.extendleft(sorted(again, reverse=True))
            self._changed.notify_all()
            return self.living

    @property
    def living(self) -> int:
        """Workers that were not lost."""
        return len(self._living)

    def progress(self) -> int:
        """Steps of this epoch that are done."""
        with self._changed:
            return len(self._done)

    def is_over(self, epoch: int) -> bool:
        with self._changed:
            return self._epoch == epoch and self._over()

    def told(self) -> list[Done]:
        """What was told of each step of an epoch that is over, in the order of the batches."""
        with self._changed:
            return [self._done[step] for step in range(self._steps)]

    def _over(self) -> bool:
        return len(self._done) == self._steps

    def _is_asked(self, worker: int) -> bool:
        return worker in self._living and not (self._alone and worker != min(self._living))
