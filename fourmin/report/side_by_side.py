"""Two results side by side: whether they differ, by how much, and in what they were made.

Times are those scaled by reference points, where there are any. They differ only if Welch's test
on log time over all runs says so at 5%. Results with another benchmark, target, dataset or clock,
and invalid ones, are not compared at all; what differs in how they were made is listed all the
same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.report.gate import FEWEST_RUNS, Asked, Gate, judge, not_gated
from fourmin.report.group import compare
from fourmin.report.model import CLOSED, Result
from fourmin.report.wording import NOT_SCALED, not_checked
from fourmin.results.power import share_found
from fourmin.results.statistics import Welch, mean, student_t_quantile, welch_test
from fourmin.rules.verdict import FAILS_HERE, INVALID, UNCHECKED

LEVEL = 0.05
"""Two results differ where a difference like theirs is less likely than this by chance."""
A_FASTER, B_FASTER = "a-faster", "b-faster"
NO_DIFFERENCE = "no-difference-shown"
NOT_ENOUGH = "not-enough-runs"
NO_SPREAD = "spread-below-resolution"
OBSTACLES = {
    what: f"another {what}: {{a}} and {{b}}"
    for what in ("benchmark", "quality target", "dataset", "rule of the clock")
}
NOTES = {
    "division": "A is of the {a} division, B of the {b} one",
    "round": "A was made under the rules of {a}, B under those of {b}",
    "chips": "another number of chips: {a} and {b}",
}
UNTOLD = "{side} does not tell its {area}"


@dataclass(frozen=True)
class Conclusion:
    """What the runs say of the two times.

    `ratio` is B's benchmark result over A's, scaled; None without both. `typical` is the same of
    the geometric means of all runs, `typical_ci95` its 95% interval by Welch; None without a test.
    """

    outcome: str
    ratio: float | None
    typical: float | None = None
    typical_ci95: tuple[float, float] | None = None
    test: Welch | None = None

    @property
    def detectable(self) -> float | None:
        """The share that the test would find nine times in ten; None without one."""
        test = self.test
        return None if test is None else share_found(test.error, test.degrees, LEVEL)

    def to_json(self) -> dict[str, Any]:
        interval = self.typical_ci95
        return {
            "outcome": self.outcome,
            "ratio": self.ratio,
            "typical_ratio": self.typical,
            "typical_ratio_ci95": None if interval is None else list(interval),
            "smallest_detectable": self.detectable,
            "welch": None
            if self.test is None
            else {"t": self.test.t, "degrees": self.test.degrees, "p": self.test.p},
        }


@dataclass(frozen=True)
class Difference:
    """A setting that is not the same: None where a side does not tell it."""

    area: str
    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class SideBySide:
    """Two results; `conclusion` is None where `obstacles` forbid a comparison."""

    ruleset: str
    a: Result
    b: Result
    obstacles: tuple[str, ...]
    notes: tuple[str, ...]
    conclusion: Conclusion | None
    differences: tuple[Difference, ...]
    gate: Gate | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "ruleset": self.ruleset,
            "a": self.a.to_json(),
            "b": self.b.to_json(),
            "comparable": not self.obstacles,
            "obstacles": list(self.obstacles),
            "notes": list(self.notes),
            "verdict": None if self.conclusion is None else self.conclusion.to_json(),
            "differences": [asdict(one) for one in self.differences],
            "gate": self.gate and self.gate.to_json(),
        }


def put_side_by_side(
    ruleset: str, results: Iterable[Result], a: str, b: str, asked: Asked | None = None
) -> SideBySide:
    """The results that `a` and `b` name among `results`, of which none was chosen or left out yet.

    With a gate, each side is the first of its campaigns, and those that were added are in the gate
    alone. Raises FourminError for a name that fits none of them, or several, and where a gate
    cannot be judged.
    """
    found = list(results)
    sides = [find_all(found, name) if asked else [find(ruleset, found, name)] for name in (a, b)]
    left, right = sides[0][0], sides[1][0]
    if left.identity == right.identity:
        raise FourminError(f"{a} and {b} are the same result", left.path, "name two")
    obstacles = tuple(_obstacles(left, right))
    return SideBySide(
        ruleset,
        left,
        right,
        obstacles,
        tuple(_notes(left, right)),
        None if obstacles else _concluded(left, right),
        tuple(_differences(left, right)),
        None if asked is None else _gated(asked, obstacles, *sides),
    )


def _gated(asked: Asked, obstacles: Sequence[str], a: list[Result], b: list[Result]) -> Gate:
    """Raises FourminError for sides that a gate must not compare."""
    reasons = [*obstacles, *not_gated(a, b)]
    if reasons:
        raise FourminError(
            "nothing says whether B is slower than A",
            "\n".join(reasons),
            "compare closed results of one benchmark and system that are not invalid",
        )
    return judge(asked, a, b)


def find(ruleset: str, results: Sequence[Result], name: str) -> Result:
    """The one result at a path or below it, or in a folder of that name.

    Several campaigns of one group give their median campaign. Raises FourminError where there is
    none, or more than one group.
    """
    grouped = compare(ruleset, _fitting(results, name))
    return _only(name, [*grouped.results, *grouped.pending, *grouped.practice])


def find_all(results: Sequence[Result], name: str) -> list[Result]:
    """The campaigns of one side of a gate, the oldest first: all have the same settings, system
    and software. Raises FourminError where there is none, or not one kind.
    """
    kinds: dict[str, list[Result]] = {}
    for result in _fitting(results, name):
        same = (result.practice, result.configuration, result.hardware, result.software)
        key = json.dumps([result.benchmark, result.system, *same], sort_keys=True, default=str)
        kinds.setdefault(key, []).append(result)
    _only(name, [side[0] for side in kinds.values()])
    (side,) = kinds.values()
    return sorted(side, key=lambda one: (one.ledger[0].time_ms if one.ledger else 0, one.path))


def _fitting(results: Sequence[Result], name: str) -> list[Result]:
    path = name.rstrip("/")
    exact = [result for result in results if result.path == path]
    return exact or [result for result in results if _lies_at(result.path, path)]


def _only(name: str, chosen: Sequence[Result]) -> Result:
    if len(chosen) == 1:
        return chosen[0]
    if not chosen:
        raise FourminError(
            f"no result {name} to compare",
            "it is no path of a campaign, run set or entry, and no part of one that was found",
            "`fourmin report --format csv` lists every result with its path",
        )
    shown = "\n".join(result.path for result in chosen[:8])
    raise FourminError(f"{name} names {len(chosen)} results, not one", shown, "name one of them")


def _lies_at(path: str, name: str) -> bool:
    return path.startswith(f"{name}/") or f"/{path}/".find(f"/{name}/") >= 0


def must_be_same(result: Result) -> dict[str, str]:
    """What two results must have in common to be compared: by `OBSTACLES`."""
    told = (result.benchmark, result.quality_target, result.dataset, result.clock)
    return {what: shown_value(value) or "-" for what, value in zip(OBSTACLES, told, strict=True)}


def may_differ(result: Result) -> dict[str, str]:
    """What a reader must know where two results differ in it: by `NOTES`."""
    told = (result.division, result.round, result.chips)
    return {what: shown_value(value) or "-" for what, value in zip(NOTES, told, strict=True)}


def why_apart(result: Result) -> str:
    """Why the time of this result must not be compared with any; empty where it may be."""
    if not result.apart:
        return ""
    word = "is INVALID" if result.status == INVALID else "has no time by its own rules"
    return f"{word}: {' '.join(result.verdict.fails)}"


def own_notes(result: Result) -> Iterator[str]:
    """What a reader must know of one side: what follows its name."""
    of = result.standing
    if not result.verified:
        yield "is reported, not verified here"
    elif result.status == UNCHECKED:
        yield f"is unchecked: {not_checked(result)}"
    elif result.status == FAILS_HERE:
        yield result.verdict.words
    if result.practice:
        yield "is practice, which never counts"
    elif result.state != CLOSED:
        yield f"is {result.state}"
    if result.minutes is not None and not result.scaled:
        yield f"is {NOT_SCALED}: it has no reference point"
    if of.at_batch > 1:
        yield f"is the median of {of.at_batch} campaigns"
    if of.shown < of.known:
        yield f"is of a group of which {of.shown} of {of.known} campaigns are shown"


def _unlike(
    words: Mapping[str, str], told: Callable[[Result], Mapping[str, str]], a: Result, b: Result
) -> Iterator[str]:
    left, right = told(a), told(b)
    for what, text in words.items():
        if left[what] != right[what]:
            yield text.format(a=left[what], b=right[what])


def _obstacles(a: Result, b: Result) -> Iterator[str]:
    """Why the times of two results must not be compared."""
    yield from _unlike(OBSTACLES, must_be_same, a, b)
    for name, result in (("A", a), ("B", b)):
        if result.apart:
            yield f"{name} {why_apart(result)}"


def _notes(a: Result, b: Result) -> Iterator[str]:
    """What a reader must know beside the times."""
    for name, result in (("A", a), ("B", b)):
        yield from (f"{name} {note}" for note in own_notes(result))
    yield from _unlike(NOTES, may_differ, a, b)
    for area, left, right in _areas(a, b):
        for name, told, other in (("A", left, right), ("B", right, left)):
            if other and not told and area != "environment":
                yield UNTOLD.format(side=name, area=area)


def _concluded(a: Result, b: Result) -> Conclusion:
    before, after = a.compared_minutes, b.compared_minutes
    ratio = after / before if before and after else None
    left, right = log_times(a), log_times(b)
    if left is None or right is None:
        return Conclusion(NOT_ENOUGH, ratio)
    test = welch_test(left, right)
    if test is None:
        return Conclusion(NO_SPREAD, ratio)
    shift = mean(right) - mean(left)
    half = student_t_quantile(1 - LEVEL / 2, test.degrees) * test.error
    outcome = NO_DIFFERENCE
    if test.p < LEVEL:
        outcome = A_FASTER if shift > 0 else B_FASTER
    interval = (math.exp(shift - half), math.exp(shift + half))
    return Conclusion(outcome, ratio, math.exp(shift), interval, test)


def log_times(result: Result) -> list[float] | None:
    """Log minutes of all runs, scaled; None where one did not converge or they are too few."""
    minutes = [run.minutes for run in result.runs]
    known = [value for value in minutes if value is not None and value > 0]
    if len(known) < max(FEWEST_RUNS, len(minutes)):
        return None
    return [math.log(value * result.factor) for value in known]


def _areas(a: Result, b: Result) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """What can be compared: of different sources only the hyperparameters that have one name."""
    if a.source == b.source:
        yield "hyperparameters", a.configuration, b.configuration
    else:
        yield "hyperparameters", a.hyperparameters, b.hyperparameters
    yield "software", a.software, b.software
    yield "hardware", a.hardware, b.hardware
    yield "environment", a.environment, b.environment


def _differences(a: Result, b: Result) -> Iterator[Difference]:
    """Every setting, version and part that is not the same, by area and name."""
    for area, left, right in _areas(a, b):
        # Where a side tells nothing at all, a note says so; the environment may be empty.
        if not (left and right) and area != "environment":
            continue
        ours, theirs = dict(_flat(left)), dict(_flat(right))
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                yield Difference(area, name, ours.get(name), theirs.get(name))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values as text; what lies within objects by names with a dot between."""
    for name, value in values.items():
        if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            value = {str(position): item for position, item in enumerate(value)}
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", shown_value(value)


def shown_value(value: Any) -> str:
    """A value as text; 1 and 1.0 are the same, as other people's logs write either."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else json.dumps(value, default=str, ensure_ascii=False)
