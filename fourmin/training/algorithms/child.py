"""The worker of a host: a process of its own, forked before its host has a thread."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from fourmin.launch.job import Job
from fourmin.recipe.algorithms import is_asynchronous


@dataclass(frozen=True)
class Child:
    """A host's end of its worker."""

    process: BaseProcess
    line: Connection
    """What is said to it, and what it says."""


def fork_worker(job: Job) -> Child | None:
    """The worker of this host, which waits to be told what to do; None where ranks do the work."""
    if not is_asynchronous(job.configuration):
        return None
    # What is imported already is shared with it.
    context = multiprocessing.get_context("fork")
    ours, its = context.Pipe()
    process = context.Process(target=_work, args=(job, ours, its), daemon=True)
    process.start()
    its.close()
    return Child(process, ours)


def _work(job: Job, hosts_end: Connection, line: Connection) -> None:
    hosts_end.close()  # or the line would never be found closed
    from fourmin.training.algorithms.worker import work

    work(job, int(os.environ["RANK"]), line)
