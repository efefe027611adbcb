"""All-reduces on a network that is simulated, event by event: the very code that trains makes them.

    python benchmarks/network.py [--hosts 8] [--ranks 2] [--rate 400] [--sizes ...] [--against FILE]

Every rank is a thread that runs the shipped all-reduce on tensors without content; its
torch.distributed moves no bytes but a clock. One thread runs at a time, and while all wait the next
event of a heap happens. A message is on its way once both sides have posted it, in segments that
take turns on each link: those of its host's rail out and in, and one that all messages of the
machine pass, the cores of a testbed. Collectives are gloo's: two rings at once, of half the tensor
each, for an all-reduce, of which torch makes the reduce-scatter too; a ring to gather; a ring and a
gathering to reduce; a binomial tree to broadcast.

`--against` takes what `benchmarks/two_hosts.py` printed: hosts, ranks and rate, how busy the cores
were, and its medians to show beside.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from fourmin.recipe.allreduces import CANDIDATES
from fourmin.recipe.rounds import ring_round_count
from fourmin.recipe.topology import Topology
from fourmin.training.comm import composed, native, rounds
from fourmin.training.comm.base import build_all_reduce
from fourmin.training.comm.ring import part_bounds

SIZES = (1 << 20, 4 << 20, 16 << 20)
SEGMENT = 64 << 10
GOODPUT = 0.82
"""Share of the testbed's limit that messages get beside headers and acknowledgements: fitted to one
figure, the flat ring's 16 MiB on two hosts of four (benchmarks/results/two-hosts-400mbit.txt).
"""
CORES_RATE = 3.6e9
"""Bytes of messages a second on the testbed's two cores, with nothing else to do: two ranks of gloo
reach 1.8 GB/s of bus bandwidth on them."""
ROUND_SECONDS, LIBRARY_SECONDS = 183e-6, 52e-6
"""Of those cores then for each message of a round and inside a collective: of the 20.5 and 11.6 ms
that 16 KiB take with `ring` and `native` in the same file, by 112 and 224 messages.
"""
SCATTER_COPIES, GATHER_COPIES = 0.8, 0.3
"""How often the bytes are copied besides: on two ranks there 4 MiB took 6.0 and 2.8 ms, an
all-reduce 4.2, and half of one 2.1."""


@dataclass(frozen=True)
class Machine:
    """`hosts` hosts of `ranks` ranks. Rates are bytes a second: of each of a host's `rails` in each
    direction, and of what all messages share. That is taken by each message besides: so many
    seconds by one of a round, and by one inside a collective.
    """

    hosts: int
    ranks: int
    rate: float
    rails: int = 1
    latency: float = 0.0
    shared_rate: float = math.inf
    round_seconds: float = 0.0
    library_seconds: float = 0.0

    @property
    def world(self) -> int:
        return self.hosts * self.ranks


def simulated_testbed(
    hosts: int, ranks: int, mbit: float, small: Mapping[str, float] | None = None
) -> Machine:
    """That of `benchmarks/two_hosts.py`. `small` are milliseconds of its 16 KiB by algorithm: they
    tell how busy its cores were with other things.
    """
    in_round, in_library = ROUND_SECONDS, LIBRARY_SECONDS
    if small:
        messages = 1e3 * ring_round_count(hosts * ranks) * hosts * ranks
        in_round, in_library = small["ring"] / messages, small["native"] / (2 * messages)
    rate, cores = GOODPUT * mbit * 1e6 / 8, CORES_RATE * LIBRARY_SECONDS / in_library
    return Machine(hosts, ranks, rate, 1, 0.0, cores, in_round, in_library)


@dataclass(eq=False)
class Work:
    """Something under way, and who waits for it."""

    sim: Simulation
    done: bool = False
    then: list[Callable[[], None]] = field(default_factory=list)

    def finish(self) -> None:
        self.done = True
        for each in self.then:
            each()

    def wait(self) -> None:
        self.sim.block(self)


Message = tuple[int, int, bool]
"""(peer, bytes, whether it goes there)."""
Link = tuple[Any, ...]
SHARED: Link = ("shared",)
Route = Sequence[tuple[Link, float]]


class Simulation:
    """A clock, a heap of events, the links, and the ranks' threads."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._free: dict[Link, float] = defaultdict(float)
        self._posted: dict[Any, deque[Work]] = defaultdict(deque)
        self._ready: deque[_Rank] = deque()
        self.back = threading.Semaphore(0)

    def run(self, body: Callable[[int], None]) -> None:
        """`body` of every rank to its end. Raises what one raises, or RuntimeError where all wait
        and nothing is under way.
        """
        ranks = [_Rank(self, rank, body) for rank in range(self.machine.world)]
        self._ready.extend(ranks)
        for rank in ranks:
            rank.start()
        while any(not rank.over for rank in ranks):
            if self._ready:
                rank = self._ready.popleft()
                rank.go.release()
                self.back.acquire()
                if rank.error:
                    raise rank.error
            elif self._events:
                self.now, _, action = heapq.heappop(self._events)
                action()
            else:
                raise RuntimeError("every rank waits for one that waits")

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), action))

    def block(self, work: Work) -> None:
        """The calling rank goes on once `work` is done."""
        if not work.done:
            rank = _this_rank()
            work.then.append(lambda: self._ready.append(rank))
            self.back.release()
            rank.go.acquire()

    def post(
        self, rank: int, peer: int, nbytes: int, outgoing: bool, tag: Any, seconds: float
    ) -> Work:
        """One side of a message, which leaves when the other side is there as well; `seconds` are
        what it takes of that which all share.
        """
        ends = (rank, peer) if outgoing else (peer, rank)
        work = Work(self)
        if others := self._posted[ends, tag, not outgoing]:
            both = work, others.popleft()
            self.take(seconds)
            self._segment(self._path(*ends), nbytes, lambda: [each.finish() for each in both])
        else:
            self._posted[ends, tag, outgoing].append(work)
        return work

    def take(self, seconds: float) -> None:
        """So much of what all share."""
        self._free[SHARED] = max(self._free[SHARED], self.now) + seconds

    def _path(self, source: int, target: int) -> list[tuple[Link, float]]:
        """The links of a message and their rates."""
        machine = self.machine
        ends = [divmod(rank, machine.ranks) for rank in (source, target)]
        rails = [
            ((host, place % machine.rails, way), machine.rate)
            for (host, place), way in zip(ends, ("out", "in"), strict=True)
        ]
        return [(SHARED, machine.shared_rate), *(rails if ends[0][0] != ends[1][0] else ())]

    def _segment(self, path: Route, left: int, done: Callable[[], Any]) -> None:
        """The next segment sets out when the first link has passed the one before."""
        size, rest = min(left, SEGMENT), left - SEGMENT
        through = self._pass(path[0], size)
        self.at(through, lambda: self._hop(path[1:], size, None if rest > 0 else done))
        if rest > 0:
            self.at(through, lambda: self._segment(path, rest, done))

    def _hop(self, path: Route, size: int, done: Callable[[], Any] | None) -> None:
        if path:
            self.at(self._pass(path[0], size), lambda: self._hop(path[1:], size, done))
        elif done:
            self.at(self.now + self.machine.latency, done)

    def _pass(self, over: tuple[Link, float], size: int) -> float:
        link, rate = over
        self._free[link] = max(self._free[link], self.now) + size / rate
        return self._free[link]

    def drive(self, rank: int, steps: Iterator[list[Message]], tag: Any) -> Work:
        """Rounds of messages one after the other, beside what the rank itself does."""
        whole, seconds = Work(self), self.machine.library_seconds

        def advance() -> None:
            for messages in steps:
                works = [self.post(rank, *each, tag, seconds) for each in messages if each[1]]
                if left := [work for work in works if not work.done]:
                    _when_all(left, advance)
                    return
            whole.finish()

        advance()
        return whole


def _when_all(works: Sequence[Work], action: Callable[[], None]) -> None:
    """`action` once all are done; at once where they are."""
    missing = [work for work in works if not work.done]

    def one() -> None:
        missing.pop()
        if not missing:
            action()

    for work in list(missing):
        work.then.append(one)
    if not missing:
        action()


class _Rank(threading.Thread):
    def __init__(self, sim: Simulation, number: int, body: Callable[[int], None]) -> None:
        super().__init__(daemon=True)
        self.number, self.go, self.over = number, threading.Semaphore(0), False
        self.error: BaseException | None = None
        self._sim, self._body = sim, body

    def run(self) -> None:
        self.go.acquire()
        try:
            self._body(self.number)
        except BaseException as error:
            self.error = error
        self.over = True
        self._sim.back.release()


def _this_rank() -> _Rank:
    rank = threading.current_thread()
    assert isinstance(rank, _Rank)
    return rank


class Gloo:
    """torch.distributed as the all-reduces use it, on a simulated network."""

    ProcessGroup, Work = tuple, Work

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._calls: dict[Any, int] = defaultdict(int)
        self._groups: dict[int, int] = defaultdict(int)
        self.all_reduce = self.collective(two_rings)
        self.isend, self.irecv = partial(self._post, True), partial(self._post, False)
        self.reduce = self.collective(lambda n: [reduction(n)])
        self.broadcast = self.collective(lambda n: [tree(n)])
        self.scatter = self.collective(two_rings, given=1, copied=SCATTER_COPIES)
        self.gather = self.collective(lambda n: [ring(n)], copied=GATHER_COPIES)

    def get_backend(self) -> str:
        return "gloo"

    def new_group(self, ranks: list[int], **_: Any) -> tuple[int, list[int]] | None:
        me = _this_rank().number
        self._groups[me] += 1
        return (self._groups[me], ranks) if me in ranks else None

    def _post(self, outgoing: bool, tensor: torch.Tensor, peer: int, tag: int = 0) -> Work:
        seconds = self._sim.machine.round_seconds
        return self._sim.post(_this_rank().number, peer, _bytes(tensor), outgoing, tag, seconds)

    def collective(
        self, patterns: Callable[[int], Sequence[Pattern]], given: int = 0, copied: float = 0.0
    ) -> Any:
        """One whose patterns follow from the bytes of its argument number `given`, of which a rank
        copies a share besides.
        """

        def call(*tensors: Any, group: Any = None, async_op: bool = False) -> Work | None:
            me = _this_rank().number
            number, ranks = group or (0, range(self._sim.machine.world))
            self._calls[me, number] += 1
            nbytes = _bytes(tensors[given])
            self._sim.take(copied * nbytes / self._sim.machine.shared_rate)
            works = [
                self._sim.drive(
                    me, pattern(ranks, ranks.index(me)), (number, self._calls[me, number], part)
                )
                for part, pattern in enumerate(patterns(nbytes))
            ]
            whole = Work(self._sim)
            _when_all(works, whole.finish)
            if async_op:
                return whole
            whole.wait()
            return None

        return call


Pattern = Callable[[Sequence[int], int], Iterator[list[Message]]]
"""From the ranks of a group and the place among them to rounds."""


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def ring(nbytes: int, around: int = 1) -> Pattern:
    """So often around, in parts."""

    def steps(ranks: Sequence[int], at: int) -> Iterator[list[Message]]:
        sizes = [end - start for start, end in part_bounds(nbytes, len(ranks))]
        right, left = ranks[(at + 1) % len(ranks)], ranks[(at - 1) % len(ranks)]
        for step in range(around * (len(ranks) - 1)):
            yield [
                (left, sizes[(at - step - 1) % len(ranks)], False),
                (right, sizes[(at - step) % len(ranks)], True),
            ]

    return steps


def two_rings(nbytes: int) -> Sequence[Pattern]:
    """A half around each twice, to add and to spread."""
    return [ring(nbytes // 2, 2), ring(nbytes - nbytes // 2, 2)]


def reduction(nbytes: int) -> Pattern:
    """A ring that adds, and what each then has goes to the first."""

    def steps(ranks: Sequence[int], at: int) -> Iterator[list[Message]]:
        yield from ring(nbytes)(ranks, at)
        share = nbytes // len(ranks)
        others = range(1, len(ranks))
        yield [(ranks[0], share, True)] if at else [(ranks[i], share, False) for i in others]

    return steps


def tree(nbytes: int) -> Pattern:
    """Binomial: in round r the first 2^r ranks give to as many more."""

    def steps(ranks: Sequence[int], at: int) -> Iterator[list[Message]]:
        have = 1
        while have < len(ranks):
            if at < have and at + have < len(ranks):
                yield [(ranks[at + have], nbytes, True)]
            elif have <= at < 2 * have:
                yield [(ranks[at - have], nbytes, False)]
            have *= 2

    return steps


def simulate(name: str, nbytes: int, machine: Machine, group_size: int = 0) -> float:
    """Seconds of an all-reduce of `nbytes` bytes of FP32, until the last rank has its sum."""
    sim = Simulation(machine)
    gloo, built = Gloo(sim), {}

    def build(rank: int) -> None:
        topology = Topology.build(rank, machine.world, machine.ranks, group_size)
        built[rank] = build_all_reduce(name, topology, hybrid_threshold=0, timeout_seconds=60)

    def reduce(rank: int) -> None:
        built[rank].all_reduce(torch.empty(nbytes // 4, dtype=torch.float32, device="meta"))

    with ExitStack() as stack:
        for module in (composed, native, rounds):
            stack.enter_context(patch.object(module, "dist", gloo))
        stack.enter_context(patch.object(composed, "_scatter", gloo.scatter))
        stack.enter_context(patch.object(composed, "_gather", gloo.gather))
        sim.run(build)
        started = sim.now
        sim.run(reduce)
    return sim.now - started


def measured_testbed(path: Path) -> tuple[Machine, dict[int, dict[str, float]]]:
    """The machine of what `benchmarks/two_hosts.py` printed, and its medians in ms by bytes."""
    lines = path.read_text().splitlines()
    found = json.loads(next(line for line in lines if line.startswith("{")))
    known = {int(size): medians for size, medians in found["milliseconds"].items()}
    place = found.get("hosts", 2), found.get("ranks", 4), found.get("rate_mbit", 400.0)
    return simulated_testbed(*place, known[16 << 10]), known


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=2, help="on each host")
    parser.add_argument("--rate", type=float, default=400.0, help="Mbit/s in each direction")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes")
    parser.add_argument("--against", type=Path, help="what two_hosts.py printed; instead of these")
    options = parser.parse_args()
    machine, known = simulated_testbed(options.hosts, options.ranks, options.rate), {}
    if options.against:
        machine, known = measured_testbed(options.against)
    print(f"{'bytes':>10}  {'algorithm':18}{'simulated ms':>13}{'measured':>11}{'off':>8}")
    for size in map(int, options.sizes.split(",")):
        for name in CANDIDATES:
            seconds = simulate(name, size, machine)
            line = f"{size:10,}  {name:18}{1e3 * seconds:13.1f}"
            if measured := known.get(size, {}).get(name):
                line += f"{measured:11.1f}{1e3 * seconds / measured - 1:+8.0%}"
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
