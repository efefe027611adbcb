"""What a report shows: results with their runs, and everything that a reader may ask of them.

Times are in minutes. Whatever a result's files do not give is None or empty, never guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fourmin.base.text import how_many
from fourmin.ledger.chain import Entry
from fourmin.ledger.landings import SELF, Landing
from fourmin.ledger.registered import GONE
from fourmin.report.prices import Price
from fourmin.report.runs import Energy, ReportedRun
from fourmin.results.clock_use import mean_rest, rest_to_json
from fourmin.results.power import smallest_detectable
from fourmin.results.rcp import Convergence
from fourmin.results.scoring import counted
from fourmin.results.statistics import (
    geometric_mean,
    known_mean,
    known_median,
    mean,
    says_something,
)
from fourmin.rules.verdict import FAILS_HERE, INVALID, NOT_JUDGED, UNCHECKED, VALID, Verdict

FOURMIN, PUBLISHED = "fourmin", "published"
"""The source of results that others reported and nobody checked here."""
CLOSED, PENDING, ABANDONED = "closed", "pending", "abandoned"
_UNKNOWN = Convergence(None, None)


@dataclass(frozen=True, slots=True)
class Baseline:
    """The smaller result that scaling efficiency is against."""

    path: str
    chips: int
    images_per_second: float


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What a campaign's plan and ledger say beside its runs."""

    landed: Landing | None
    """How the plan came to the base branch, where that is known."""
    ranked_batch: int | None
    earlier: frozenset[str]
    """Digests of the campaigns that count and were known when this one was registered."""
    practice: int
    """How many practice campaigns were known then."""
    retries: int
    """Attempts of its runs that ended before run_start."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A result among the campaigns of its group: see `fourmin.report.group`."""

    campaigns: int = 1
    """Those that count, at every batch; `failed` of them have no result."""
    failed: int = 0
    pending: int = 0
    """How many more are not closed yet."""
    batches: int = 1
    at_batch: int = 1
    """How many of the campaigns this one is the median of."""
    known: int = 1
    """Campaigns of the benchmark that were known where those of the group were made."""
    shown: int = 1
    """How many of those are here."""
    practice: int = 0
    retries: int = 0
    ranked: bool = True
    """Whether this batch is the submitter's row in a ranking."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One campaign, one run set of another benchmark's format, or one published result.

    `minutes` is the benchmark result and None where the runs give none; `state` says whether the
    campaign is closed, pending, unfinished or abandoned; `group` tells which campaigns count
    together.
    """

    source: str
    path: str
    submitter: str
    system: str
    benchmark: str
    division: str
    chips: int | None
    global_batch_size: int | None
    quality_target: float | None
    runs: tuple[ReportedRun, ...]
    minutes: float | None
    verdict: Verdict
    group: Hashable
    identity: Hashable
    scaled_minutes: float | None = None
    ci95: tuple[float, float] | None = None
    cv: float | None = None
    epochs_mean: float | None = None
    images_per_second: float | None = None
    state: str = CLOSED
    practice: bool = False
    registration: str = "none"
    registered: tuple[str, ...] = ()
    """How it was registered, in words."""
    planned: Planned | None = None
    standing: Standing = Standing()
    rank: int | None = None
    """The place in its table, from 1; None where it has none."""
    nodes: int | None = None
    dataset: str = ""
    clock: str = "fourmin"
    """Which rule starts and stops the clock."""
    round: str = ""
    """The version of the ruleset, or MLPerf's round."""
    chip: str = ""
    """Model of the chips that trained."""
    convergence: Convergence = _UNKNOWN
    """Mean epochs as compared with the reference convergence point, and that point."""
    baseline: Baseline | None = None
    price: Price | None = None
    citation: str = ""
    """Where a published result is from."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """Every setting of the run that is known, under its source's names."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Those that MLPerf's logs name, under its keys: the same names for every source."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Environment variables, and what changed the interpreter."""
    ledger: tuple[Entry, ...] = ()

    @property
    def comparable(self) -> tuple[str, str, str, str, float]:
        """Benchmark, division, dataset, clock and target: results that differ in any of them must
        not be compared, so they never stand in one table.
        """
        target = -math.inf if self.quality_target is None else self.quality_target
        return self.benchmark, self.division, self.dataset, self.clock, target

    @property
    def gone(self) -> bool:
        """Whether only history shows this campaign."""
        return GONE in self.registered

    @property
    def pending(self) -> bool:
        return self.state == PENDING

    @property
    def failed(self) -> bool:
        """Whether this campaign counts as failed in its group."""
        invalid = self.status == INVALID
        return not self.pending and (self.minutes is None or self.state != CLOSED or invalid)

    @property
    def scaled(self) -> bool:
        """Whether there was a reference point to scale the time by."""
        return None not in (self.scaled_minutes, self.convergence.epochs) and (
            self.convergence.reference is not None
        )

    @property
    def compared_minutes(self) -> float | None:
        """The time that ranks, medians and comparisons go by: the scaled one where there is one."""
        return self.minutes if self.scaled_minutes is None else self.scaled_minutes

    @property
    def chip_minutes(self) -> float | None:
        """The time that is compared, times chips; None where either is not known."""
        return self.chips * self.compared_minutes if self.chips and self.compared_minutes else None

    @property
    def factor(self) -> float:
        """What a time of a run is multiplied by to be compared."""
        if not self.minutes or self.scaled_minutes is None:
            return 1.0
        return self.scaled_minutes / self.minutes

    @property
    def level(self) -> int:
        """What stands below what in a table: valid, doubtful, without a time, kept apart."""
        return 3 if self.apart else 2 if self.minutes is None else int(bool(self.doubt))

    @property
    def apart(self) -> bool:
        """Whether it stands below all others, and is neither drawn nor compared.

        An invalid result does, and one of MLPerf that has no time by its own rules.
        """
        unscored = self.minutes is not None and self.scaled_minutes is None
        return self.status == INVALID or (self.status == FAILS_HERE and unscored)

    @property
    def doubt(self) -> str:
        """What a reader must know wherever its time stands beside others; empty for nothing."""
        if self.status == UNCHECKED:
            return f"unchecked {' '.join(self.verdict.unchecked)}"
        return self.verdict.words if self.status == FAILS_HERE else ""

    @property
    def verified(self) -> bool:
        """Whether files were checked here; published results are only reported."""
        return self.source != PUBLISHED

    @property
    def status(self) -> str:
        return self.verdict.status if self.verified else NOT_JUDGED

    @property
    def valid(self) -> bool:
        """Whether it was checked here, in all that is required, and nothing makes it invalid."""
        return self.status == VALID

    @property
    def evidence(self) -> tuple[str, ...]:
        """What the result stands on, and what speaks against it, in short words."""
        if not self.verified:
            return ("reported",)
        words = list(self.registered)
        if self.registration == SELF:
            # Nothing else tells of campaigns that were made before.
            words.append("memory of the machine")
        if self.minutes is not None:
            words.append("reference point" if self.scaled else "no reference point")
        of = self.standing
        if of.shown < of.known:
            words.append(f"{of.shown} of {of.known} shown")
        if of.practice:
            words.append(how_many(of.practice, "practice campaign"))
        if of.retries:
            words.append(how_many(of.retries, "attempt") + " before a start")
        return tuple(words)

    @property
    def quality(self) -> float | None:
        """Mean accuracy of the runs that converged; of a published result what was reported."""
        return known_mean(run.facts.quality for run in self.runs if run.minutes is not None)

    @property
    def scaling_efficiency(self) -> float | None:
        """Images/s of a chip, over those of a chip of the baseline; None without one."""
        own, base = self.images_per_second, self.baseline
        if base is None or own is None or not self.chips:
            return None
        return (own / self.chips) / (base.images_per_second / base.chips)

    @property
    def all_minutes(self) -> list[float]:
        """Minutes of all runs that the interval is of; empty without one."""
        return [run.minutes for run in self.runs if run.minutes] if self.ci95 else []

    @property
    def told_interval(self) -> tuple[float, float] | None:
        """The interval, where the runs are enough, and near enough, for it to say anything."""
        runs = sum(run.minutes is not None for run in self.runs)
        return self.ci95 if self.ci95 and says_something(self.ci95, runs) else None

    @property
    def typical_minutes(self) -> float | None:
        """Geometric mean of all runs, which the interval is around; None without one."""
        return geometric_mean(self.all_minutes) if self.all_minutes else None

    @property
    def smallest_detectable(self) -> float | None:
        """The share by which another such result must differ to be told from this one."""
        return smallest_detectable(self.all_minutes)

    @property
    def energy(self) -> Energy | None:
        """Energy to train: the mean over the runs that the benchmark result is the mean of.

        None unless each of those was measured, by one method and of the same parts.
        """
        if self.minutes is None:
            return None
        measured = [self.runs[i].energy for i in counted([run.minutes for run in self.runs])]
        found = [energy for energy in measured if energy is not None]
        if not found or len(found) < len(measured):
            return None
        if len({(energy.method, energy.scope) for energy in found}) > 1:
            return None
        return Energy(mean([e.joules for e in found]), found[0].method, found[0].scope)

    @property
    def cost(self) -> float | None:
        """Cost to train in the price's currency: the benchmark result at the stated price."""
        if self.price is None or self.minutes is None:
            return None
        return self.minutes / 60 * self.price.per_hour

    @property
    def exposed_ms(self) -> float | None:
        """Mean over the runs of the median exposed communication of a step."""
        return known_mean(r.communication.exposed_ms_median for r in self.runs if r.communication)

    @property
    def steady_share(self) -> float | None:
        """Median over the runs of the share of the clock at the steady rate; None without one."""
        return known_median(run.steady_share for run in self.runs)

    @property
    def rest_seconds(self) -> Mapping[str, float]:
        """Seconds of a run beside the steady rate, the mean over the runs of each part."""
        return mean_rest([run.clock_use for run in self.runs if run.clock_use])

    @property
    def started_in_seconds(self) -> float | None:
        """Median over the runs of the time from run-intent to run-start; None without one."""
        return known_median(run.started_in_seconds for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """As `fourmin report --format json` gives it; keys are added, never renamed."""
        point = self.convergence.reference
        made = {
            "runs": [run.to_json() for run in self.runs],
            "ci95": None if self.ci95 is None else list(self.ci95),
            "waivers": list(self.verdict.waivers),
            "findings": len(self.verdict.findings),
            "unchecked": list(self.verdict.unchecked),
            "fails": list(self.verdict.fails),
            "evidence": list(self.evidence),
            **{name: getattr(self.standing, key) for name, key in _STANDING.items()},
            "rcp": point
            and {
                "epochs": self.convergence.epochs,
                "mean": point.mean,
                "minimum": point.minimum,
            },
            "rest_seconds": rest_to_json(self.rest_seconds),
            "scaling_baseline": self.baseline and self.baseline.path,
            "energy": self.energy and self.energy.to_json(),
            "cost": None
            if self.price is None or self.cost is None
            else {"amount": self.cost, **self.price.to_json(), "basis": "stated"},
        }
        return {name: made[name] if name in made else getattr(self, name) for name in _KEYS}


_STANDING = {
    "campaigns": "campaigns", "ranked": "ranked", "batches": "batches",
    "campaigns_at_batch": "at_batch", "failed_campaigns": "failed",
    "pending_campaigns": "pending", "known_campaigns": "known", "shown_campaigns": "shown",
    "practice_campaigns": "practice", "attempts_before_start": "retries",
}  # fmt: skip
"""Keys in JSON of what a group says of a result."""
_KEYS = (
    "source", "path", "submitter", "system", "benchmark", "division", "chips", "global_batch_size",
    "quality_target", "runs", "minutes", "scaled_minutes", "ci95", "cv", "epochs_mean",
    "images_per_second", "scaling_efficiency", "campaigns", "waivers", "findings", "valid",
    "registration", "dataset", "clock", "state", "practice", "round", "chip", "quality", "rcp",
    "scaling_baseline", "exposed_ms", "energy", "cost", "verified", "citation",
    "status", "unchecked", "evidence", "rank", "scaled", "nodes",
    "ranked", "batches", "campaigns_at_batch", "failed_campaigns", "pending_campaigns",
    "known_campaigns", "shown_campaigns", "practice_campaigns", "attempts_before_start",
    "fails", "steady_share", "rest_seconds", "started_in_seconds",
    "typical_minutes", "smallest_detectable",
)  # fmt: skip
"""A result's keys in JSON, most under the names that they have here."""


@dataclass(frozen=True)
class Comparison:
    """A report's content: results that count, sorted; failed, pending and practice campaigns."""

    ruleset: str
    results: tuple[Result, ...]
    failed: tuple[Result, ...] = ()
    pending: tuple[Result, ...] = ()
    practice: tuple[Result, ...] = ()
    here: tuple[tuple[str, str], ...] = ()
    """Paths that say where on this machine the results lie, each with what a page says instead."""

    def local(self, text: str, written: Callable[[str], str] = str) -> str:
        """A text without the paths of `here`, which stand in it as `written` gives them."""
        for path, shown in self.here:  # the path first: a search for text is fast
            whole = r"{0}(?<![\w.-]{0})(?![\w.-])".format(re.escape(written(path)))
            text = re.sub(whole, lambda _, shown=shown: written(shown), text)  # type: ignore[misc]
        return text

    @property
    def every(self) -> tuple[Result, ...]:
        """All of them, each campaign once."""
        found: dict[Hashable, Result] = {}
        for result in (*self.results, *self.failed, *self.pending, *self.practice):
            found.setdefault(result.identity, result)
        return tuple(found.values())
