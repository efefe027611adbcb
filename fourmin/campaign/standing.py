"""How a campaign stands, made from its events: what displays show, whatever they look like."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from fourmin.campaign.events import (
    CampaignOpened,
    Event,
    RecordLogged,
    RunFinished,
    RunRestarting,
    RunStarting,
)
from fourmin.log import keys
from fourmin.results.run_result import ABORTED


@dataclass
class RunUnderWay:
    """What is known of the run that is under way; times are of the standing's clock."""

    run: int
    began: float
    trained_since: float | None = None
    epoch: int = 0
    images_per_second: float | None = None
    accuracy: float | None = None
    phase: str = "starting workers"

    def take(self, record: RecordLogged, now: float) -> None:
        epoch, value = record.metadata.get(keys.EPOCH_NUM), record.value
        if record.key == keys.INIT_START:
            self.phase = "initializing"
        elif record.key == keys.RUN_START:
            self.phase, self.trained_since = "training", now
        elif record.key == keys.EPOCH_STOP and isinstance(epoch, int):
            self.epoch = epoch
        elif record.key == keys.TRACKED_STATS and isinstance(value, dict):
            rate = value.get("throughput")
            self.images_per_second = rate if isinstance(rate, float) else None
        elif record.key == keys.EVAL_ACCURACY and isinstance(value, (int, float)):
            self.accuracy = float(value)


class Standing:
    """A campaign as its events so far tell it. Events that fit nothing before them are passed by.

    `campaign` is None until it is opened, `under_way` where no run is; `finished` has the outcome
    of each run by number.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.campaign: CampaignOpened | None = None
        self.under_way: RunUnderWay | None = None
        self.finished: dict[int, RunFinished] = {}

    def take(self, event: Event) -> None:
        run = self.under_way
        if isinstance(event, CampaignOpened):
            self.campaign = event
        elif isinstance(event, RunStarting):
            self.under_way = RunUnderWay(event.run, self._clock())
        elif isinstance(event, RunFinished):
            self.finished[event.run] = event
            self.under_way = None
        elif run is not None and isinstance(event, RunRestarting):
            run.epoch, run.phase = event.epoch, "restarting"
        elif run is not None and isinstance(event, RecordLogged):
            run.take(event, self._clock())

    @property
    def expected_epochs(self) -> float:
        """How many epochs the run under way is taken to need.

        As many as any before it that ended of itself, else, and beyond these, the whole schedule.
        """
        ended = (run for run in self.finished.values() if run.status != ABORTED)
        most = max((run.epochs or 0 for run in ended), default=0)
        if most and (self.under_way is None or self.under_way.epoch <= most):
            return most
        return self.campaign.max_epochs if self.campaign else most

    @property
    def elapsed(self) -> float:
        """Seconds since the run under way was begun."""
        return 0.0 if self.under_way is None else self._clock() - self.under_way.began

    @property
    def seconds_left(self) -> float | None:
        """Until the end of the expected epochs at the pace so far; None before the first."""
        run = self.under_way
        if run is None or run.trained_since is None or not run.epoch:
            return None
        pace = (self._clock() - run.trained_since) / run.epoch
        return max(0.0, pace * (self.expected_epochs - run.epoch))
