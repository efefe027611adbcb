"""Times of calls, on the host's clock or by the device's events."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch

Call = Callable[[], object]


def median_time(call: Call, device: torch.device) -> float:
    """The median time of a call in seconds."""
    for _ in range(2):
        call()
    return statistics.median(times(call, device, 9))


def times(call: Call, device: torch.device, repeats: int) -> list[float]:
    if device.type != "cuda":
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return seconds
    # One event between two steps: the device never waits for the host to read a clock.
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    torch.cuda.synchronize(device)
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize(device)
    return [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(events)]
