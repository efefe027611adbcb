"""Sandblaster (Dean et al. 2012, section 4.2): a coordinator, shards and workers, over RPC.

A shard holds its slice of every vector. A worker takes the weights from the shards, and gives the
gradients of its portions back to them; the coordinator tells everybody what to do, and only
numbers come to it. Workers may die on the way, coordinator and shards may not.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed import rpc
from torch.futures import Future, wait_all

from fourmin.base.errors import FourminError
from fourmin.training.algorithms.portions import OrderedSum, Portions

T = TypeVar("T")

Term = tuple[float, Tensor, Tensor]
"""A portion's term of the loss, that term's gradient, and what else is wanted of each portion."""

Gradient = Callable[[Tensor, range], Term]
"""The term of a portion, for weights in float64; the same bits whoever calls it."""


@dataclass(frozen=True)
class Roles:
    """Who does what, by rank; one rank may do several things. Rank 0 coordinates."""

    shards: Sequence[int]
    workers: Sequence[int]


class Shard:
    """A slice of every vector. What it does, it does in float64, for whoever calls."""

    def __init__(self, x: Tensor) -> None:
        self._vectors = {"x": x.double()}
        self._lock = threading.Lock()
        self._evaluation = 0
        self._sum = self._nothing()

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

    def begin(self, evaluation: int) -> None:
        """From now on take the gradients of this evaluation, and no others."""
        with self._lock:
            self._evaluation, self._sum = evaluation, self._nothing()

    def put(self, evaluation: int, portion: int, gradient: Tensor) -> None:
        with self._lock:
            if evaluation == self._evaluation:
                self._sum.put(portion, gradient.double())

    def settle(self, name: str) -> None:
        """The sum of all portions' gradients becomes a vector."""
        self._vectors[name] = self._sum.total

    def _nothing(self) -> OrderedSum[Tensor]:
        return OrderedSum(torch.zeros_like(self._vectors["x"]), Tensor.add_)


class Worker:
    """Makes the gradients of portions, one at a time."""

    def __init__(self, gradient: Gradient, shards: Sequence[str]) -> None:
        self._gradient = gradient
        self._shards = shards
        self._evaluation = 0
        self._parts: tuple[Tensor, ...] = ()

    def work(self, evaluation: int, at: str, number: int, samples: range) -> tuple[float, Tensor]:
        """Give a portion's gradient to the shards; returns the rest of its term.

        The weights are taken once in an evaluation.
        """
        if evaluation != self._evaluation:
            self._parts = tuple(_tell(self._shards, Shard.read, at))
            self._evaluation = evaluation
        loss, gradient, other = self._gradient(torch.cat(self._parts), samples)
        slices = gradient.split([part.numel() for part in self._parts])
        wait_all(
            [
                _call(shard, Shard.put, evaluation, number, part)
                for shard, part in zip(self._shards, slices, strict=True)
            ]
        )
        return loss, other


class Coordinator:
    """The vectors of all shards, and the loss by all workers (`lbfgs.Vectors`)."""

    def __init__(
        self, shards: Sequence[str], workers: Sequence[str], portions: Sequence[range]
    ) -> None:
        self._shards = shards
        self._portions = portions
        self._free = list(workers)
        self._busy: set[str] = set()
        self._finished: SimpleQueue[tuple[str, int, int, Future[tuple[float, Tensor]]]] = (
            SimpleQueue()
        )
        self._evaluation = 0
        self.lost: list[str] = []
        """Workers that died, or did not answer in time."""
        self.given = 0
        """Portions given so far, those of a second time among them."""
        self.others: list[Tensor] = []
        """What else came of each portion in the last evaluation, in their order."""

    def dots(self, left: Sequence[str], right: Sequence[str]) -> list[list[float]]:
        found = torch.tensor(_tell(self._shards, Shard.dots, left, right), dtype=torch.float64)
        rows: list[list[float]] = found.sum(0).tolist()
        return rows

    def absolute_sum(self, name: str) -> float:
        return math.fsum(_tell(self._shards, Shard.absolute_sum, name))

    def combine(self, target: str, terms: Mapping[str, float]) -> None:
        _tell(self._shards, Shard.combine, target, terms)

    def read(self, name: str) -> Tensor:
        """A whole vector."""
        return torch.cat(_tell(self._shards, Shard.read, name))

    def evaluate(self, at: str, gradient: str) -> float:
        """The sum of all portions' terms. Raises FourminError when no worker is left."""
        self._evaluation += 1
        _tell(self._shards, Shard.begin, self._evaluation)
        portions: Portions[tuple[float, Tensor]] = Portions(len(self._portions))
        while not portions.complete:
            for worker in list(self._free):
                self._give(worker, at, portions)
            worker, evaluation, number, future = self._finished.get()
            self._busy.discard(worker)
            try:
                answer = future.value()
            except Exception as error:
                self.lost.append(worker)
                portions.lose(worker)
                if not self._free and not self._busy:
                    raise FourminError(
                        "no worker is left that could do the portions",
                        f"{worker}: {str(error).strip().partition(chr(10))[0]}",
                    ) from error
                continue
            self._free.append(worker)
            if evaluation == self._evaluation:
                portions.answer(number, answer)
        _tell(self._shards, Shard.settle, gradient)
        self.others = [other for _, other in portions.answers]
        return math.fsum(loss for loss, _ in portions.answers)

    def _give(self, worker: str, at: str, portions: Portions[tuple[float, Tensor]]) -> None:
        number = portions.give(worker)
        if number is None:
            return
        self._free.remove(worker)
        self._busy.add(worker)
        self.given += 1
        future = _call(worker, Worker.work, self._evaluation, at, number, self._portions[number])
        finished = (worker, self._evaluation, number, future)
        future.add_done_callback(lambda _: self._finished.put(finished))


_here: dict[str, Any] = {}
"""What this process is to the others: its shard and its worker, by the names of their classes."""

_over = threading.Event()


def take_part(
    rank: int,
    world_size: int,
    roles: Roles,
    x: Tensor,
    gradient: Gradient,
    portions: Sequence[range],
    coordinate: Callable[[Coordinator], T],
    *,
    init_method: str = "env://",
    timeout_seconds: float,
) -> T | None:
    """Do what the roles say until the coordinator has done `coordinate`; returns what that did.

    `x` are all weights to start from, the same on every rank. `timeout_seconds` is how long any
    call may last, a portion's gradient above all. A coordinator that dies lets the others wait:
    whoever started them ends them.
    """
    names = [f"rank{number}" for number in range(world_size)]
    shards = [names[number] for number in roles.shards]
    _over.clear()
    if rank in roles.shards:
        own = x.tensor_split(len(shards))[list(roles.shards).index(rank)]
        _here[Shard.__name__] = Shard(own.clone())
    if rank in roles.workers:
        _here[Worker.__name__] = Worker(gradient, shards)
    rpc.init_rpc(
        names[rank],
        rank=rank,
        world_size=world_size,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method=init_method, rpc_timeout=timeout_seconds
        ),
    )
    try:
        if rank:
            _over.wait()
            return None
        try:
            coordinator = Coordinator(shards, [names[one] for one in roles.workers], portions)
            return coordinate(coordinator)
        finally:
            for told in [rpc.rpc_async(name, _end) for name in names[1:]]:
                with suppress(RuntimeError):  # one that is dead, or leaves before it has answered
                    told.wait()
    finally:
        # Not gracefully, which waits for the dead too.
        rpc.shutdown(graceful=False)
        _here.clear()


def _end() -> None:
    _over.set()


def _call(to: str, method: Callable[..., T], *arguments: object) -> Future[T]:
    """Have a method called of what another process is."""
    future: Future[T] = rpc.rpc_async(to, _answer, args=(method, *arguments))
    return future


def _tell(to: Sequence[str], method: Callable[..., T], *arguments: object) -> list[T]:
    """The same of several, at once; their answers in order."""
    answers: list[T] = wait_all([_call(name, method, *arguments) for name in to])
    return answers


def _answer(method: Callable[..., T], *arguments: object) -> T:
    kind = method.__qualname__.partition(".")[0]
    return method(_here[kind], *arguments)
