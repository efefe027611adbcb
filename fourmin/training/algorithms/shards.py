"""Sandblaster's coordinator, shards and replicas (Dean et al. 2012, section 4.2), over RPC.

A shard is a host with its slice of every vector; the host of rank 0 is the coordinator too. A
worker takes the weights from the shards, and gives the gradients of its portions back to them; only
numbers come to the coordinator, and what a portion says of its batch. Workers may die on the way,
hosts may not.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.futures import Future, wait_all

from fourmin.base.errors import FourminError
from fourmin.training.algorithms import calls
from fourmin.training.algorithms.portions import OrderedSum, Portions

SHARD, REPLICA = "shard", "replica"
"""The names under which hosts and workers serve theirs."""


class Term(NamedTuple):
    """A portion's term of the loss."""

    loss: float
    gradient: Tensor
    """Of the term; flat."""
    rest: tuple[Tensor, ...]
    """What else is wanted of each portion."""


Gradient = Callable[[Tensor, int], Term]
"""The term of a portion, for flat weights in float64; the same bits whoever calls it."""


class Shard:
    """A slice of every vector. What it does, it does in float64, for whoever calls."""

    def __init__(self) -> None:
        self._vectors: dict[str, Tensor] = {}
        self._lock = threading.Lock()
        self._evaluation = 0
        self.at = ""
        """Where the last evaluation was."""

    def put(self, name: str, values: Tensor) -> None:
        self._vectors[name] = values.double()

    def dots(self, left: Sequence[str], right: Sequence[str]) -> list[list[float]]:
        vectors = self._vectors
        return [[float(vectors[a] @ vectors[b]) for b in right] for a in left]

    def absolute_sum(self, name: str) -> float:
        return float(self._vectors[name].abs().sum())

    def combine(self, target: str, terms: Mapping[str, float]) -> None:
        total = torch.zeros_like(self._vectors["x"])
        for name, coefficient in terms.items():
            total.add_(self._vectors[name], alpha=coefficient)
        self._vectors[target] = total

    def read(self, name: str) -> Tensor:
        return self._vectors[name]

    def begin(self, evaluation: int, at: str) -> None:
        """From now on take the gradients of this evaluation, and no others."""
        with self._lock:
            self._evaluation, self.at = evaluation, at
            self._sum = OrderedSum(torch.zeros_like(self._vectors["x"]), Tensor.add_)

    def add(self, evaluation: int, portion: int, gradient: Tensor) -> None:
        with self._lock:
            if evaluation == self._evaluation:
                self._sum.put(portion, gradient.double())

    def settle(self, name: str) -> None:
        """The sum of all portions' gradients becomes a vector."""
        self._vectors[name] = self._sum.total


class Replica:
    """Makes the gradients of portions, one at a time."""

    def __init__(self, gradient: Gradient, shards: Sequence[int]) -> None:
        self._gradient = gradient
        self._shards = shards
        self._evaluation = 0
        self._parts: list[Tensor] = []

    def work(self, evaluation: int, at: str, portion: int) -> tuple[float, tuple[Tensor, ...], int]:
        """Give a portion's gradient to the shards; returns the rest of its term, and the bytes of
        weights and gradients that were sent for it.

        The weights are taken once in an evaluation.
        """
        moved = 0
        if evaluation != self._evaluation:
            self._parts = _tell(self._shards, "read", at)
            self._evaluation = evaluation
            moved = sum(part.nbytes for part in self._parts)
        loss, gradient, rest = self._gradient(torch.cat(self._parts), portion)
        slices = gradient.split([part.numel() for part in self._parts])
        wait_all(
            [
                calls.start(calls.host_name(shard), SHARD, "add", evaluation, portion, part)
                for shard, part in zip(self._shards, slices, strict=True)
            ]
        )
        return loss, rest, moved + gradient.nbytes


class Coordinator:
    """The vectors of all shards, and the loss by all workers (`lbfgs.Vectors`)."""

    def __init__(self, shards: Sequence[int], workers: Sequence[int]) -> None:
        self.portions = 0
        """How many there are."""
        self._shards = shards
        self._free = list(workers)
        self._busy: set[int] = set()
        self._finished: SimpleQueue[tuple[int, int, int, Future[Any]]] = SimpleQueue()
        self._evaluation = 0
        self.lost: list[int] = []
        """Workers that died, or could not do a portion."""
        self.given = 0
        """Portions given so far, those of a second time among them."""
        self.bytes = 0
        """Of weights and gradients that workers and shards sent each other for what counts."""
        self.terms: list[tuple[float, tuple[Tensor, ...]]] = []
        """Loss and rest of each portion in the last evaluation, in their order."""
        self.answered: Callable[[], object] = lambda: None
        """Called whenever a worker has answered."""

    def dots(self, left: Sequence[str], right: Sequence[str]) -> list[list[float]]:
        found = torch.tensor(_tell(self._shards, "dots", left, right), dtype=torch.float64)
        rows: list[list[float]] = found.sum(0).tolist()
        return rows

    def absolute_sum(self, name: str) -> float:
        return math.fsum(_tell(self._shards, "absolute_sum", name))

    def combine(self, target: str, terms: Mapping[str, float]) -> None:
        _tell(self._shards, "combine", target, terms)

    def evaluate(self, at: str, gradient: str) -> float:
        """The sum of all portions' terms. Raises FourminError when no worker is left."""
        self._evaluation += 1
        _tell(self._shards, "begin", self._evaluation, at)
        portions: Portions[tuple[float, tuple[Tensor, ...]]] = Portions(self.portions)
        while not portions.complete:
            for worker in list(self._free):
                self._give(worker, at, portions)
            worker, evaluation, number, future = self._finished.get()
            self._busy.discard(worker)
            self.answered()
            try:
                loss, rest, moved = future.value()
            except Exception as error:
                self.lost.append(worker)
                portions.lose(worker)
                if not self._free and not self._busy:
                    raise FourminError(
                        "no worker is left that could do the portions",
                        f"worker {worker}: {str(error).strip().partition(chr(10))[0]}",
                    ) from error
                continue
            self._free.append(worker)
            if evaluation == self._evaluation and portions.answer(number, (loss, rest)):
                self.bytes += moved
        _tell(self._shards, "settle", gradient)
        self.terms = portions.answers
        return math.fsum(loss for loss, _ in self.terms)

    def _give(self, worker: int, at: str, portions: Portions[Any]) -> None:
        number = portions.give(worker)
        if number is None:
            return
        self._free.remove(worker)
        self._busy.add(worker)
        self.given += 1
        asked = (self._evaluation, at, number)
        future = calls.start(calls.worker_name(worker), REPLICA, "work", *asked)
        finished = (worker, self._evaluation, number, future)
        future.add_done_callback(lambda _: self._finished.put(finished))


def _tell(shards: Sequence[int], method: str, *arguments: object) -> list[Any]:
    """The same of all shards, at once; their answers in order."""
    asked = [calls.start(calls.host_name(shard), SHARD, method, *arguments) for shard in shards]
    answers: list[Any] = wait_all(asked)
    return answers
