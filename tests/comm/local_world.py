"""A process group of W local processes that runs functions of ``comm_cases`` by name.

The processes are forked from one server that has imported torch, so that a world costs a
fraction of a second and not one import of torch for each process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed"])


class CaseFailedError(Exception):
    """A case raised; the message holds the tracebacks by rank."""


class LocalWorld:
    """W processes, each waiting for the name of a case."""

    def __init__(
        self, size: int, folder: Path, timeout_seconds: float, backend: str = "gloo"
    ) -> None:
        self.size = size
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        store = str(folder / "store")
        for rank in range(size):
            ours, theirs = _CONTEXT.Pipe()
            process = _CONTEXT.Process(
                target=serve,
                args=(theirs, rank, size, store, timeout_seconds, backend),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self.run("ready")

    def run(self, case: str, **arguments: Any) -> list[Any]:
        """Run a case on all ranks; its return values, by rank."""
        self.start(case, **arguments)
        return self.results(range(self.size))

    def start(self, case: str, **arguments: Any) -> None:
        for pipe in self._pipes:
            pipe.send((case, arguments))

    def results(self, ranks: Any, seconds: float = 60.0) -> list[Any]:
        """What the case returned on ``ranks``; raises CaseFailedError if it raised on one."""
        deadline = time.monotonic() + seconds
        values, failures = [], []
        for rank in ranks:
            if not self._pipes[rank].poll(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"rank {rank} has not answered within {seconds} s")
            ok, value = self._pipes[rank].recv()
            if ok:
                values.append(value)
            else:
                failures.append(f"rank {rank}:\n{value}")
        if failures:
            raise CaseFailedError("\n".join(failures))
        return values

    def signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self._processes[rank].pid, number)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(0.5)
            if process.is_alive():
                process.kill()
                process.join()


def serve(
    pipe: Connection, rank: int, size: int, store: str, timeout_seconds: float, backend: str
) -> None:
    """The life of a worker process; it ends when the other end of the pipe is closed."""
    import comm_cases
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout_seconds),
    )
    while True:
        try:
            case, arguments = pipe.recv()
        except EOFError:
            # Not a clean exit of the group: peers may be dead, and nobody listens any more.
            os._exit(0)
        try:
            answer = (True, getattr(comm_cases, case)(rank, size, **arguments))
        except BaseException:
            answer = (False, traceback.format_exc())
        pipe.send(answer)
