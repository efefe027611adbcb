"""Energy to train over all nodes: one worker a node reads that node's meter."""

from __future__ import annotations

import math

import torch

from fourmin.log import keys
from fourmin.log.writer import RunLog
from fourmin.system.energy import Meter, open_meter
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.ranks import numbers_of_ranks


class RunEnergy:
    """The energy of one run, from its start to its stop.

    A run that was not counted from its beginning (it went on after a restart) or on every node
    has none.
    """

    def __init__(self, place: WorkerPlace, meter: Meter | None = None) -> None:
        """Open this node's meter, if this worker is the first on its node and there is one."""
        self._place = place
        self._meter = meter or self._open()
        self._started = False

    def start(self) -> None:
        """Begin to count: right before run_start."""
        if self._meter is not None:
            self._meter.start()
            self._started = True

    def stop(self) -> float | None:
        """This node's joules, right after run_stop; None where they were not counted."""
        return self._meter.stop() if self._meter is not None and self._started else None

    def log(self, log: RunLog, joules: float | None) -> None:
        """Log the sum of all nodes, if every one has counted. All ranks call this together."""
        place = self._place
        first = place.local_rank == 0
        own = math.nan if first and joules is None else joules or 0.0
        rows = numbers_of_ranks([own, first], place).tolist()
        nodes = [counted for counted, of_a_node in rows if of_a_node]
        if self._meter is None or not all(map(math.isfinite, nodes)):
            return
        log.point(
            keys.ENERGY,
            {
                "joules": math.fsum(nodes),
                "method": self._meter.method,
                "scope": self._meter.scope,
                "nodes": nodes,
            },
        )

    def _open(self) -> Meter | None:
        place = self._place
        if place.local_rank != 0:
            return None
        gpus = []
        if place.device.type == "cuda":
            gpus = [
                str(torch.cuda.get_device_properties(index).uuid)
                for index in range(place.ranks_per_node)
            ]
        return open_meter(place.device.type, gpus)
