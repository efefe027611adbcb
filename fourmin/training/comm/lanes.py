"""Where buckets are reduced while the backward pass goes on: a thread or a CUDA stream.

Both lanes run the work they are given strictly in the order of submission.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

import torch

_JOIN_SECONDS = 5.0


class ExposedTime:
    """The communication time of one step that computation did not hide."""

    def __init__(self, read: Callable[[], float]) -> None:
        """``read`` returns the time in seconds; it is called only when the time is asked for."""
        self._read = read

    def seconds(self) -> float:
        """The time in seconds; on CUDA this waits until the GPU has passed the step's reduction.

        Read it a few steps later, or once for many steps, to keep the GPU busy.
        """
        return self._read()


class Lane(Protocol):
    """Runs reductions beside the backward pass."""

    def submit(self, index: int) -> None:
        """Start the work of bucket ``index`` after that of the buckets submitted before."""

    def wait(self) -> ExposedTime:
        """Make the caller (its current stream, on CUDA) wait for all submitted work.

        Raises the first exception of that work.
        """

    def close(self) -> None:
        """Stop; calling it again does nothing."""


class ThreadLane:
    """One thread for all collectives, as gloo's block; made for tensors on the CPU."""

    def __init__(self, work: Callable[[int], None]) -> None:
        """``work(index)`` is called in the thread."""
        self._work = work
        self._todo: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._submitted = 0
        # A daemon, so that a thread that hangs in a collective cannot keep the process alive.
        self._thread = threading.Thread(target=self._run, name="fourmin-comm", daemon=True)
        self._thread.start()

    def submit(self, index: int) -> None:
        self._submitted += 1
        self._todo.put(index)

    def wait(self) -> ExposedTime:
        """See ``Lane.wait``; the exposed time is that of this call."""
        start = time.perf_counter()
        while self._submitted:
            failure = self._done.get()
            self._submitted -= 1
            if failure is not None:
                raise failure
        waited = time.perf_counter() - start
        return ExposedTime(lambda: waited)

    def close(self) -> None:
        """See ``Lane.close``; gives up on a thread that hangs in a collective."""
        self._todo.put(None)
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        failure: BaseException | None = None
        while (index := self._todo.get()) is not None:
            # After a failure the ranks are out of step: answer, but send nothing more.
            if failure is None:
                try:
                    self._work(index)
                except BaseException as error:
                    failure = error
            self._done.put(failure)


class StreamLane:
    """A side stream for all collectives of one CUDA device."""

    def __init__(self, work: Callable[[int], None], device: torch.device) -> None:
        """``work(index)`` is called at once, with the side stream as current stream."""
        self._work = work
        self._device = device
        # High priority: a collective that waits for free multiprocessors delays every rank.
        self._stream = torch.cuda.Stream(device, priority=-1)

    def submit(self, index: int) -> None:
        """See ``Lane.submit``; the work starts after what the current stream holds now."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._work(index)

    def wait(self) -> ExposedTime:
        """See ``Lane.wait``; the host does not wait.

        The exposed time is from the end of the work on the current stream to that of the side
        stream, 0 if the side stream ended first.
        """
        current = torch.cuda.current_stream(self._device)
        computed = torch.cuda.Event(enable_timing=True)
        reduced = torch.cuda.Event(enable_timing=True)
        computed.record(current)
        reduced.record(self._stream)
        current.wait_event(reduced)

        def read() -> float:
            computed.synchronize()
            reduced.synchronize()
            return max(0.0, float(computed.elapsed_time(reduced)) / 1000.0)

        return ExposedTime(read)

    def close(self) -> None:
        self._stream.synchronize()
