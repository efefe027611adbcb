"""A trace of some steps of a practice run, for Perfetto: what computes when, on CPU and GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.profiler import profile, record_function

from fourmin.launch.job import Job
from fourmin.results.names import TRACE_FILE

SKIPPED = 3
"""Steps before the first that is traced: caches fill, and memory is taken."""


class Trace:
    """Of `job.profile` steps of a run, after the first ones; to be made before any CUDA graph.

    It lies beside the log; `say` is told so, and where the run had fewer steps.
    """

    def __init__(self, job: Job, say: Callable[[str], None]) -> None:
        self._wanted, self._say, self._begun = job.profile or 0, say, 0
        self._path = job.events_log.with_name(TRACE_FILE)
        with profile():  # or kernels of graphs that were captured before would not be seen
            pass
        self._profile = profile()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around each step of the run."""
        self._begun += 1
        if self._begun == SKIPPED + 1:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # the steps before are not a part of it
            self._profile.start()
        with record_function(f"step {self._begun}"):
            yield
        if self._begun == SKIPPED + self._wanted:
            self._write()

    def close(self) -> None:
        """Write what there is where the run has ended first."""
        if self._begun <= SKIPPED:
            self._say(f"no trace: the run had {self._begun} steps, of which {SKIPPED} are left out")
        elif self._begun < SKIPPED + self._wanted:
            self._write()

    def _write(self) -> None:
        self._profile.stop()  # waits for the device
        self._profile.export_chrome_trace(str(self._path))
        traced = f"{self._begun - SKIPPED} of {self._wanted} steps traced: {self._path}"
        self._say(f"{traced}; open in Perfetto (https://ui.perfetto.dev) or chrome://tracing")
