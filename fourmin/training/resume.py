"""When a checkpoint is made and how one comes back, as all ranks see it.

torch.distributed.checkpoint is imported on rank 0 alone, before the clock: it takes half a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fourmin.launch.job import checkpoint_name
from fourmin.log import keys
from fourmin.log.writer import RunLog
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.ranks import gloo_group
from fourmin.training.state import State

if TYPE_CHECKING:
    from fourmin.training.checkpoint import CheckpointWriter


class Checkpoints:
    """The checkpoints of a run in `folder`. Every rank makes one of these at the same point.

    Rank 0 writes and reads them. Without `writes` none is made; one can still be loaded.
    """

    def __init__(self, folder: Path, place: WorkerPlace, log: RunLog, *, writes: bool) -> None:
        self._folder = folder
        self._reads = place.rank == 0
        self.writes = writes
        self._log = log
        self._writer: CheckpointWriter | None = None
        if not writes:
            return
        # NCCL moves what lies on GPUs, and a checkpoint does not.
        group = gloo_group([0]) if place.device.type == "cuda" else None
        if place.rank == 0:
            from fourmin.training.checkpoint import CheckpointWriter

            # What a checkpoint goes on from must be in the log, whatever happens to the machine.
            self._writer = CheckpointWriter(folder, log.sync, group)

    def save(self, epoch: int, state: Callable[[], State]) -> None:
        """Begin a checkpoint after `epoch`, unless the one before is still being written.

        The time for which training waits is logged.
        """
        if self._writer is None or self._writer.busy:
            return
        began = time.perf_counter()
        self._writer.begin(epoch, state())
        milliseconds = (time.perf_counter() - began) * 1000
        self._log.point(keys.CHECKPOINT, {"milliseconds": milliseconds}, epoch_num=epoch)

    def load(self, epoch: int) -> State | None:
        """The checkpoint after `epoch` on rank 0, None elsewhere."""
        if not self._reads:
            return None
        from fourmin.training.checkpoint import load_checkpoint

        return load_checkpoint(self._folder / checkpoint_name(epoch))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
