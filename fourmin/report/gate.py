"""A gate for continuous integration: whether B is slower than A by more than a margin.

Each quantity is judged for itself, by Welch's interval of the ratio of geometric means. A quantity
that cannot be told names how many runs of each side would tell. That number is planned once, from
the first campaigns of both sides; what is added is judged when it is reached and not before, and
not again, for each look is another chance of a false alarm.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fourmin.base.errors import FourminError, list_names
from fourmin.report.model import CLOSED, Result
from fourmin.report.runs import ReportedRun
from fourmin.results.power import runs_to_tell
from fourmin.results.statistics import mean, sample_deviation, satterthwaite, student_t_quantile

TIME, RATE, EPOCHS = "time", "rate", "epochs"
QUANTITIES = {
    TIME: "times as long to the target",
    RATE: "times as long an image",
    EPOCHS: "times as many epochs",
}
"""What can be judged, and what a ratio of it says of B."""
USUAL = (RATE, EPOCHS)
SLOWER, NOT_SLOWER, CANNOT_TELL = "slower", "not-slower", "cannot-tell"
FIRST_LOOK, PLANNED_LOOK = 0.975, 0.99
"""Confidence of the one-sided bounds. Both looks together err in at most 3.5%."""
FEWEST_RUNS = 3
_CLOCK_SECONDS = 1e-3
"""What a log's times are known to."""


@dataclass(frozen=True)
class Asked:
    """A gate: by what share B may be slower, and in which quantities."""

    margin: float
    of: tuple[str, ...] = USUAL

    @classmethod
    def parse(cls, text: str, of: Sequence[str]) -> Asked:
        """From such as `5%` or `5`, both five hundredths. Raises FourminError."""
        percent = text.strip().removesuffix("%")
        if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?", percent) or not set(of) <= set(QUANTITIES):
            known = f"such as 5%, --of {list_names([*QUANTITIES])}"
            raise FourminError(f"no gate --fail-if-slower {text} --of {' '.join(of)}", "", known)
        return cls(float(percent) / 100, tuple(dict.fromkeys(of)) or USUAL)


@dataclass(frozen=True)
class Judged:
    """One quantity: B over A, above 1 where B is slower, with one-sided bounds of `confidence`.

    `runs_to_tell` is how many runs of each side would tell, None where they do, where nobody can
    know, and where as many as were planned did not; `why` says that in words.
    """

    of: str
    outcome: str
    runs: tuple[int, int]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float = FIRST_LOOK
    runs_to_tell: int | None = None
    why: str = ""


@dataclass(frozen=True)
class Gate:
    """What was asked and found; `missed` is how many runs of A and of B missed the target."""

    asked: Asked
    judged: tuple[Judged, ...]
    missed: tuple[int, int]
    runs: tuple[int, int]

    @property
    def misses_more(self) -> bool:
        """Whether B missed the target and A never, or more often than by chance (Fisher's exact
        test, one-sided).
        """
        (a, b), (of_a, of_b) = self.missed, self.runs
        worse = range(b, min(a + b, of_b) + 1)
        ways = sum(math.comb(of_b, k) * math.comb(of_a, a + b - k) for k in worse)
        return b > 0 and (a == 0 or ways / math.comb(of_a + of_b, a + b) < 1 - FIRST_LOOK)

    @property
    def failed(self) -> bool:
        return self.misses_more or any(one.outcome == SLOWER for one in self.judged)

    def to_json(self) -> dict[str, Any]:
        return {
            "margin_percent": self.asked.margin * 100,
            "failed": self.failed,
            "missed_the_target": list(self.missed),
            "misses_more": self.misses_more,
            "judged": [asdict(one) for one in self.judged],
        }


def judge(asked: Asked, a: Sequence[Result], b: Sequence[Result]) -> Gate:
    """The gate between two sides: of each its campaigns, the oldest first.

    Raises FourminError where nothing of them can be judged.
    """
    every = [[run for result in side for run in result.runs] for side in (a, b)]
    missed = [sum(run.facts.counted_epochs is None for run in runs) for runs in every]
    judged = tuple(_judged(of, asked.margin, (a[0], b[0]), every) for of in asked.of)
    gate = Gate(asked, judged, (missed[0], missed[1]), (len(every[0]), len(every[1])))
    if not gate.failed and all(one.ratio is None for one in judged):
        raise FourminError(
            "nothing says whether B is slower than A",
            "\n".join(f"{one.of}: {one.why}" for one in judged),
            f"compare results of at least {FEWEST_RUNS} runs each",
        )
    return gate


def not_gated(a: Sequence[Result], b: Sequence[Result]) -> list[str]:
    """Why two sides that may be compared must not be gated: other machines, or not all there."""
    same = (("chip", a[0].chip, b[0].chip), ("number of chips", a[0].chips, b[0].chips))
    found = [f"another {what}: {x or '-'} and {y or '-'}" for what, x, y in same if x != y]
    for name, side in (("A", a), ("B", b)):
        found += [f"{name} is {one.state}: {one.path}" for one in side if one.state != CLOSED]
        found += [f"{name} is INVALID: {one.path}" for one in side[1:] if one.apart]
    return found


Runs = Sequence[ReportedRun]


def _judged(of: str, margin: float, sides: tuple[Result, Result], every: Sequence[Runs]) -> Judged:
    def look(confidence: float, a: Runs, b: Runs) -> Judged:
        values = [_values(of, *one) for one in zip((a, b), sides, strict=True)]
        return judge_values(of, margin, values[0], values[1], confidence)

    found = look(FIRST_LOOK, sides[0].runs, sides[1].runs)
    planned, there = found.runs_to_tell, [len(runs) for runs in every]
    if planned is None or there == [len(side.runs) for side in sides]:
        return found
    if min(there) < planned:
        why = f"{there[0]} and {there[1]} runs are there, which are judged at {planned} each"
        return replace(found, why=why)
    again = look(PLANNED_LOOK, *(runs[:planned] for runs in every))
    why = again.why if again.runs_to_tell is None else "not with as many runs as were planned"
    return replace(again, runs_to_tell=None, why=why)


def judge_values(
    of: str,
    margin: float,
    a: tuple[Sequence[float], float],
    b: tuple[Sequence[float], float],
    confidence: float = FIRST_LOOK,
) -> Judged:
    """Each side: what its runs took, and the share of it to which that is known at best.

    Too few values, or none because a run has none: `cannot-tell`, with the reason.
    """
    counts = (len(a[0]), len(b[0]))
    if min(counts) < FEWEST_RUNS:
        why = f"not enough runs: each side needs {FEWEST_RUNS}, each of which tells its {of}"
        return Judged(of, CANNOT_TELL, counts, why=why)
    logs = [[math.log(value) for value in values] for values, _ in (a, b)]
    # Runs that are all alike may be of two neighbouring values: those spread by half a step.
    variances = [
        max(sample_deviation(values) ** 2, known**2 / 4)
        for values, (_, known) in zip(logs, (a, b), strict=True)
    ]
    parts = [(v / n, n - 1) for v, n in zip(variances, counts, strict=True)]
    half = student_t_quantile(confidence, satterthwaite(parts)) * math.sqrt(
        sum(part for part, _ in parts)
    )
    shift, limit = mean(logs[1]) - mean(logs[0]), math.log1p(margin)
    low, high = shift - half, shift + half
    outcome = SLOWER if low > limit else NOT_SLOWER if high < limit else CANNOT_TELL
    planned, why = None, ""
    if outcome == CANNOT_TELL and margin:
        distance = math.log1p(2 * margin) - limit
        degrees = satterthwaite([(v, n - 1) for v, n in zip(variances, counts, strict=True)])
        needed = runs_to_tell(sum(variances), degrees, distance, PLANNED_LOOK)
        planned = max(needed, *(count + 1 for count in counts))
    elif outcome == CANNOT_TELL:
        why = "without a margin no number of runs would tell"
    ratio, least, most = map(math.exp, (shift, low, high))
    return Judged(of, outcome, counts, ratio, least, most, confidence, planned, why)


def _values(of: str, runs: Runs, side: Result) -> tuple[list[float], float]:
    """What each run took, and to which share of that it is known.

    Nothing where a run missed the target, but for the rate, which all others tell all the same.
    """
    found = [_value(of, run) for run in runs]
    told = [one for one in found if one is not None and one[0] > 0]
    if not told or (len(told) < len(runs) and of != RATE):
        return [], 0.0
    factor = side.factor if of == TIME else 1.0
    return [value * factor for value, _ in told], max(known / value for value, known in told)


def run_values(run: ReportedRun) -> dict[str, float]:
    """What a run took, by quantity: minutes, seconds an image, epochs; those that it tells."""
    found = {of: _value(of, run) for of in QUANTITIES}
    return {of: value[0] for of, value in found.items() if value is not None}


def _value(of: str, run: ReportedRun) -> tuple[float, float] | None:
    """What a run took (minutes, seconds an image, or epochs), and how closely that is known."""
    if of == RATE:
        rate, use = run.steady_rate, run.clock_use
        if not rate or use is None:
            return None
        return 1 / rate, _CLOCK_SECONDS / use.steady_epoch_seconds / rate
    epochs = run.facts.counted_epochs
    if epochs is None:
        return None
    if of == TIME:
        return None if run.minutes is None else (run.minutes, _CLOCK_SECONDS / 60)
    earlier = [one.epoch for one in run.facts.evaluations[:-1] if one.epoch is not None]
    return epochs, epochs - (earlier[-1] if earlier else 0)


def gate_verdict(gate: Gate) -> str:
    """The gate in one line."""
    left = [one.of for one in gate.judged if one.outcome == CANNOT_TELL]
    said = "FAILED" if gate.failed else "passed"
    if left and not gate.failed:
        said = f"not failed, but {' and '.join(left)} cannot be told"
    return f"gate, fails where B is more than {100 * gate.asked.margin:g}% slower: {said}"


def gate_lines(gate: Gate) -> Iterator[tuple[str, str]]:
    """Each part of a gate: how it came out, and that in words."""
    for one in gate.judged:
        yield one.outcome, f"{one.of}: {_said(one)}"
    (a, b), (of_a, of_b) = gate.missed, gate.runs
    if a or b:
        said = f"target: {a} of {of_a} runs of A and {b} of {of_b} of B missed it"
        yield SLOWER if gate.misses_more else CANNOT_TELL, said


def _said(one: Judged) -> str:
    said = one.outcome.replace("-", " ")
    if one.ratio is None:
        return f"{said}: {one.why}"
    bounds = {SLOWER: f"at least {one.low:.3f}", NOT_SLOWER: f"at most {one.high:.3f}"}
    bound = bounds.get(one.outcome, f"{one.low:.3f} to {one.high:.3f}")
    said += f": B takes {one.ratio:.3f} {QUANTITIES[one.of]}, {bound} ({one.confidence:.1%})"
    if one.runs_to_tell:
        said += f"; {one.runs_to_tell} runs of each side would tell"
    return f"{said}; {one.why}" if one.why else said
