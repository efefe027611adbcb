"""Work on many things in a few processes, in the order of the things."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from fourmin.base.processes import end_with_the_command

FEWEST = 24
"""With fewer things than this, starting processes would take longer than it saves."""
MOST_PROCESSES = 8

T = TypeVar("T")
R = TypeVar("R")


def in_processes(work: Callable[[T], R], things: Sequence[T]) -> Iterator[R]:
    """`work` of each thing, in their order; with one CPU or few things in this process.

    `work` is a function of a module; what it takes and gives can be pickled.
    """
    processes = min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
    if processes < 2 or len(things) < FEWEST:
        yield from map(work, things)
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), end_with_the_command)
    done = 0
    try:
        for result in pool.map(work, things, chunksize=2):
            yield result
            done += 1
    except BrokenProcessPool:  # one was killed, perhaps for its memory
        yield from map(work, things[done:])
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
