"""Whether a run that was cut off has ended, can go on, and from where.

Its event log and its checkpoints decide. A checkpoint's folder has its final name only when it is
complete, so whatever stands under such a name can be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fourmin.launch.job import complete_checkpoints
from fourmin.ledger.campaign import CHECKPOINTS_FOLDER, EVENTS_FILE
from fourmin.log import keys
from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline


@dataclass(frozen=True)
class CutOff:
    """How a run stands whose workers are gone.

    `whole`: its log has everything that a run writes, so it ended of itself. `epoch`: the epoch
    after which it can go on, 0 for the start of training; None where it cannot.
    """

    whole: bool
    epoch: int | None


def look_at(run_folder: Path) -> CutOff:
    """How the run in `run_folder` stands."""
    timeline = Timeline(read_log(run_folder / EVENTS_FILE))
    aborted = timeline.count(keys.ABORT) > 0
    # The last thing that a run logs.
    whole = timeline.count(keys.COMMUNICATION) > 0 and not aborted
    if aborted or not timeline.count(keys.RUN_START) or timeline.count(keys.RUN_STOP):
        return CutOff(whole, None)
    # After a kill or a power cut the log may know less than the checkpoints do.
    logged = {record.metadata.get(keys.EPOCH_NUM) for record in timeline.all(keys.CHECKPOINT)}
    saved = complete_checkpoints(run_folder / CHECKPOINTS_FOLDER)
    return CutOff(whole, max((epoch for epoch in saved if epoch in logged), default=0))
