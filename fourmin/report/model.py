"""What a report shows: results with their runs, and everything that a reader may ask of them.

Times are in minutes. Whatever a result's files do not give is None or empty, never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fourmin.ledger.chain import Entry
from fourmin.report.prices import Price
from fourmin.results.rcp import Convergence
from fourmin.results.run_result import RunFacts
from fourmin.results.scoring import counted
from fourmin.results.statistics import known_mean, mean
from fourmin.rules.verdict import VALID, Verdict

PUBLISHED = "published"
"""The source of results that others reported and nobody checked here."""
_UNKNOWN = Convergence(None, None)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a run: `initialization`, `run`, `epoch`, `block` or `evaluation`.

    Start and stop are minutes since run_start, so negative before the clock; `stop` is None
    where the part never ended.
    """

    name: str
    epoch: float | None
    start: float
    stop: float | None


@dataclass(frozen=True, slots=True)
class Communication:
    """What gradient communication cost a step of rank 0, in milliseconds not hidden by compute."""

    exposed_ms_median: float
    exposed_ms_p95: float
    algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Energy:
    """Measured from run_start to run_stop: joules, by which meter, and of which parts."""

    joules: float
    method: str
    scope: str

    def to_json(self) -> dict[str, Any]:
        """Keys of result.json, marked as measured."""
        return {**asdict(self), "basis": "measured"}


@dataclass(frozen=True, kw_only=True)
class ReportedRun:
    """One run: its path, what its log says, and the minutes with which it counts."""

    path: str
    facts: RunFacts
    minutes: float | None
    spans: tuple[Span, ...] = ()
    communication: Communication | None = None
    energy: Energy | None = None

    def to_json(self) -> dict[str, Any]:
        """As `fourmin report --format json` gives it."""
        names = ("status", "minutes", "epochs", "quality")
        told = {name: getattr(self.facts, name) for name in names}
        energy = self.energy and self.energy.to_json()
        return {"path": self.path, **told, "minutes": self.minutes, "energy": energy}


@dataclass(frozen=True, slots=True)
class Baseline:
    """The smaller result that scaling efficiency is against."""

    path: str
    chips: int
    images_per_second: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """One campaign, one run set of another benchmark's format, or one published result.

    `minutes` is the benchmark result and None where the runs give none; `state` says whether the
    campaign is closed, unfinished or abandoned; `group` tells which campaigns count together.
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
    state: str = "closed"
    practice: bool = False
    registration: str = "none"
    campaigns: int = 1
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
    def failed(self) -> bool:
        """Whether this campaign counts as failed in its group."""
        return self.minutes is None or self.state != "closed"

    @property
    def verified(self) -> bool:
        """Whether files were checked here; published results are only reported."""
        return self.source != PUBLISHED

    @property
    def valid(self) -> bool:
        """Whether it was checked here, in all that is required, and nothing makes it invalid."""
        return self.verified and self.verdict.status == VALID

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

    def to_json(self) -> dict[str, Any]:
        """As `fourmin report --format json` gives it; keys are added, never renamed."""
        point = self.convergence.reference
        made = {
            "runs": [run.to_json() for run in self.runs],
            "ci95": None if self.ci95 is None else list(self.ci95),
            "waivers": list(self.verdict.waivers),
            "findings": len(self.verdict.findings),
            "status": self.verdict.status,
            "unchecked": list(self.verdict.unchecked),
            "rcp": point
            and {
                "epochs": self.convergence.epochs,
                "mean": point.mean,
                "minimum": point.minimum,
            },
            "scaling_baseline": self.baseline and self.baseline.path,
            "energy": self.energy and self.energy.to_json(),
            "cost": None
            if self.price is None or self.cost is None
            else {"amount": self.cost, **self.price.to_json(), "basis": "stated"},
        }
        return {name: made[name] if name in made else getattr(self, name) for name in _KEYS}


_KEYS = (
    "source", "path", "submitter", "system", "benchmark", "division", "chips", "global_batch_size",
    "quality_target", "runs", "minutes", "scaled_minutes", "ci95", "cv", "epochs_mean",
    "images_per_second", "scaling_efficiency", "campaigns", "waivers", "findings", "valid",
    "registration", "dataset", "clock", "state", "practice", "round", "chip", "quality", "rcp",
    "scaling_baseline", "exposed_ms", "energy", "cost", "verified", "citation",
    "status", "unchecked",
)  # fmt: skip
"""A result's keys in JSON, most under the names that they have here."""


@dataclass(frozen=True)
class Comparison:
    """A report's content: the results that count, sorted; failed campaigns; practice."""

    ruleset: str
    results: tuple[Result, ...]
    failed: tuple[Result, ...] = field(default=())
    practice: tuple[Result, ...] = field(default=())
