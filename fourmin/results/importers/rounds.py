"""The rounds of MLPerf Training that had ResNet-50, and what each asked for.

From MLCommons' training rules and the rule files of its compliance checker. The round of a result
comes from the nearest folder above it that is named after one (`v4.0`, `training_results_v4.0`,
`training_4.0.0`); where there is none, from the log itself: the dialects of v0.5 and v0.6 are
their own, later rounds are told apart by the date on which the run started.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property

from fourmin.log import keys
from fourmin.log.records import MLL, MLP
from fourmin.log.timeline import Timeline


@dataclass(frozen=True)
class Round:
    """One round: its name, the last day on which its results were made, and its rules.

    `quality_target` is top-1 accuracy, `init_minutes` the most that closed and open results may
    take before the clock starts (None where the round had no such limit), `references` the round
    whose reference convergence points apply, `scaled` whether the score is multiplied by them.
    The other fields say what the round's rules ask a log to hold.
    """

    name: str
    last_day: str
    quality_target: float = 0.759
    init_minutes: tuple[float, float] | None = (30, 240)
    references: str | None = None
    scaled: bool = False
    setup_keys: bool = True
    accumulation_key: bool = True
    seed_key: bool = True
    tensors: bool = False
    limits: bool = True

    @property
    def clock(self) -> str:
        """Which clock the round used: times of different clocks are not compared."""
        return "MLPerf v0.5" if self.init_minutes is None else "MLPerf"

    @cached_property
    def last_ms(self) -> float:
        """The end of the last day, in ms since the epoch (UTC)."""
        day = datetime.fromisoformat(self.last_day).replace(tzinfo=timezone.utc)
        return (day.timestamp() + 86_400) * 1000


_V0_7 = Round("v0.7", "2020-10-31", init_minutes=(20, 240), accumulation_key=False, seed_key=False)
_V0_6 = replace(_V0_7, name="v0.6", last_day="2019-12-31", setup_keys=False, limits=False)
ROUNDS = (
    replace(_V0_6, name="v0.5", last_day="2018-12-31", quality_target=0.749, init_minutes=None),
    _V0_6,
    _V0_7,
    Round("v1.0", "2021-06-30", init_minutes=(20, 240), references="1.0", tensors=True),
    Round("v1.1", "2021-12-31", init_minutes=(20, 240), references="1.1", tensors=True),
    Round("v2.0", "2022-06-30", references="2.0", tensors=True),
    Round("v2.1", "2022-12-31", references="2.1", scaled=True, tensors=True),
    Round("v3.0", "2023-06-30", references="3.0", scaled=True, tensors=True),
    Round("v3.1", "2023-12-31", references="3.1", scaled=True),
    Round("v4.0", "2024-06-30", references="4.0", scaled=True),
    Round("v4.1", "2024-12-31", references="4.0", scaled=True),
    Round("v5.0", "9999-12-31", references="4.0", scaled=True),
)
"""In the order in which they were held."""

TOP5_TARGET = 0.93
DAWNBENCH_RULES = replace(_V0_6, name="", quality_target=TOP5_TARGET, init_minutes=None)
"""What DAWNBench asks for, which has no rounds: its target on ImageNet alone."""
_BY_NAME = {known.name: known for known in ROUNDS}
_FOLDER = re.compile(
    r"(?:mlperf[-_])?(?:training[-_])?(?:results?[-_])?v?([0-9]\.[0-9])(?:\.[0-9])?\Z",
    re.IGNORECASE,
)


def round_of_path(folders: tuple[str, ...]) -> Round | None:
    """The round that the last of `folders` with a round's name has; None without one."""
    for folder in reversed(folders):
        match = _FOLDER.match(folder)
        if match and f"v{match.group(1)}" in _BY_NAME:
            return _BY_NAME[f"v{match.group(1)}"]
    return None


def round_of_log(timeline: Timeline) -> Round:
    """The round whose dialect and dates a log has."""
    dialects = {record.dialect for record in timeline.log.records[:1]}
    if MLP in dialects:
        return _BY_NAME["v0.5"]
    if MLL in dialects:
        return _BY_NAME["v0.6"]
    record = timeline.first(keys.RUN_START) or timeline.last(keys.INIT_STOP)
    started = None if record is None else record.time_ms
    if started is None:
        return ROUNDS[-1]
    modern = ROUNDS[2:]
    return next((known for known in modern if started < known.last_ms), modern[-1])
