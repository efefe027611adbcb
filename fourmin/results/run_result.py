"""The run facts: what one event log gives, and of this project's log the content of result.json.

Writing a result and checking one are the same: a validator makes it anew from events.log and
compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

from fourmin.base.values import mapping
from fourmin.log import keys
from fourmin.log.intervals import difference
from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline

CONVERGED = "converged"
NOT_CONVERGED = "not-converged"
ABORTED = "aborted"
STATUSES = (CONVERGED, NOT_CONVERGED, ABORTED)

_MILLISECONDS_PER_MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One evaluation: after which epoch, accuracy, images as logged, minutes since run_start."""

    epoch: float | None
    accuracy: float | None
    samples: Any
    minutes: float | None


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What the log of a run says, under the names of result.json; None where it does not.

    `status` is `converged` when the run ended of itself with the target reached, `not-converged`
    when it ended of itself without, `aborted` when anything else ended it. `minutes` is the time
    from run_start to run_stop by the longer clock, all other times are the wall clock's;
    `images_per_second` counts the images trained on against the time
    between epoch_start and epoch_stop, without evaluation. A field with a key beside its
    type is the value of that key's first record, unchecked.
    """

    campaign: Any = None
    run: Any = None
    attempt: Any = None
    practice: Any = None
    ruleset: Any = None
    benchmark: Annotated[Any, keys.SUBMISSION_BENCHMARK] = None
    division: Annotated[Any, keys.SUBMISSION_DIVISION] = None
    submitter: Annotated[Any, keys.SUBMISSION_ORG] = None
    system_name: Annotated[Any, keys.SUBMISSION_PLATFORM] = None
    status: str
    failure: Annotated[Any, keys.ABORT] = None
    seed: Annotated[Any, keys.SEED] = None
    minutes: float | None = None
    epochs: float | None = None
    """Of the last evaluation, as is `quality`."""
    quality: float | None = None
    evaluations: tuple[Evaluated, ...] = ()
    images_per_second: float | None = None
    train_samples: Annotated[Any, keys.TRAIN_SAMPLES] = None
    eval_samples: Annotated[Any, keys.EVAL_SAMPLES] = None
    dataset: Annotated[Any, keys.DATASET] = None
    initial_weights_digest: Annotated[Any, keys.INITIAL_WEIGHTS_DIGEST] = None
    data_order_digest: Annotated[Any, keys.DATA_ORDER_DIGEST] = None
    package_digest: Annotated[Any, keys.PACKAGE_DIGEST] = None
    first_losses: Annotated[Any, keys.STEP_LOSS] = None
    cache_cleared: Annotated[Any, keys.CACHE_CLEAR] = None
    communication: Annotated[Any, keys.COMMUNICATION] = None
    energy: Annotated[Any, keys.ENERGY] = None
    configuration: Mapping[str, Any] = field(default_factory=dict)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    system: Annotated[Any, keys.SYSTEM] = None
    restarts: tuple[Mapping[str, Any], ...] = ()
    """When, after which epoch, and how much of the time was lost; as in result.json."""
    clocks: tuple[Any, ...] = ()
    """What the log says of other nodes' clocks; empty where it says nothing."""

    @classmethod
    def read(cls, events: Path) -> RunFacts:
        """Those of one of this project's logs."""
        return cls.of(Timeline(read_log(events)))

    @classmethod
    def of(cls, timeline: Timeline) -> RunFacts:
        """Those of one of this project's logs; nothing is raised for a broken one."""
        last = timeline.evaluations[-1] if timeline.evaluations else None
        campaign = mapping(timeline.value(keys.CAMPAIGN))
        names = ("campaign", "run", "attempt", "practice", "ruleset")
        return cls.common(
            timeline,
            **{name: campaign.get(name) for name in names},
            **_logged(timeline, own=True),
            status=_status(timeline),
            epochs=None if last is None else last.epoch,
            quality=None if last is None else last.accuracy,
            images_per_second=_throughput(timeline),
            configuration=mapping(timeline.value(keys.CONFIGURATION)),
            restarts=tuple(
                {
                    "restart": restart.number,
                    "epoch": restart.epoch,
                    "minutes": minutes_between(timeline.run_start_ms, restart.time_ms),
                    "lost_minutes": minutes_between(0, restart.lost_ms),
                }
                for restart in timeline.restarts
            ),
            clocks=timeline.values(keys.CLOCKS)[:1],
        )

    @classmethod
    def common(cls, timeline: Timeline, **others: Any) -> RunFacts:
        """What means the same in every benchmark's log, and beside it `others`."""
        start = timeline.run_start_ms
        return cls(
            **_logged(timeline, own=False),
            minutes=minutes_between(0, timeline.time_to_train_ms),
            evaluations=tuple(
                Evaluated(e.epoch, e.accuracy, e.samples, minutes_between(start, e.time_ms))
                for e in timeline.evaluations
            ),
            hyperparameters=timeline.hyperparameters,
            **others,
        )

    def counted_minutes(self, practice: bool = False) -> float | None:
        """The minutes with which the run counts, None where it counts as not converged.

        In practice there is no target to reach: every run that ended of itself counts.
        """
        counts = self.status == CONVERGED or (practice and self.status != ABORTED)
        return float(self.minutes) if counts and self.minutes is not None else None

    @property
    def counted_epochs(self) -> float | None:
        """The epochs to the target; None where it was not reached."""
        return self.epochs if self.status == CONVERGED else None

    @property
    def hardware(self) -> Mapping[str, Any]:
        """That of the system, empty where there is none."""
        return mapping(mapping(self.system).get("hardware"))

    def to_json(self) -> dict[str, Any]:
        """The content of result.json; restarts and clocks only where there are any."""
        made = {"schema_version": 1, **vars(self)}
        made["evaluations"] = [asdict(one) for one in self.evaluations]
        del made["restarts"], made["clocks"]
        if self.restarts:
            made["restarts"] = list(self.restarts)
        if self.clocks:
            made["clocks"] = self.clocks[0]
        return made


_KEYS: dict[str, str] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(RunFacts, include_extras=True).items()
    if get_origin(hint) is Annotated
}


def _logged(timeline: Timeline, own: bool) -> dict[str, Any]:
    """The fields that are a key's value: those of this project's keys, or of MLPerf's."""
    found = {name for name, key in _KEYS.items() if (key in keys.FOURMIN_KEYS) == own}
    return {name: timeline.value(_KEYS[name]) for name in found}


def minutes_between(start_ms: float | None, stop_ms: float | None) -> float | None:
    """None without both."""
    spent = difference(stop_ms, start_ms)
    return None if spent is None else spent / _MILLISECONDS_PER_MINUTE


def _status(timeline: Timeline) -> str:
    if timeline.count(keys.ABORT) or not timeline.count(keys.RUN_STOP):
        return ABORTED
    return CONVERGED if timeline.status == keys.SUCCESS else NOT_CONVERGED


def _throughput(timeline: Timeline) -> float | None:
    """Images trained on in whole epochs, over the time spent in them (images/s)."""
    images, milliseconds = 0.0, 0.0
    for interval in timeline.epoch_intervals:
        if interval.samples is not None and interval.duration_ms is not None:
            images += interval.samples
            milliseconds += interval.duration_ms
    return images / milliseconds * 1000 if milliseconds > 0 else None
