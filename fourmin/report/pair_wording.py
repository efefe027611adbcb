"""The words of a comparison of two results, shared by the text formats."""

from __future__ import annotations

from collections.abc import Iterator

from fourmin.base.text import printable
from fourmin.report.gate import FEWEST_RUNS, gate_lines, gate_verdict
from fourmin.report.model import Result
from fourmin.report.side_by_side import (
    A_FASTER,
    B_FASTER,
    LEVEL,
    NO_SPREAD,
    NOT_ENOUGH,
    Conclusion,
    SideBySide,
)
from fourmin.report.wording import NONE, duration, interval, run_times, verdict

_LONGEST_VALUE = 300


def headline(name: str, result: Result) -> str:
    """One of the two: who, what, its time with interval and runs."""
    spread = "" if result.ci95 is None else f", 95% interval {interval(result)}"
    return (
        f"{name}  {printable(result.submitter)}, {printable(result.system)}: "
        f"{_time(result)}{spread}; runs {run_times(result)}; {verdict(result)}; "
        f"{printable(result.path)}"
    )


def conclusion(pair: SideBySide) -> Iterator[str]:
    """What the times say, or why they must not be compared; then what else a reader must know."""
    if pair.conclusion is None:
        yield "not comparable:"
        yield from (f"  {printable(obstacle)}" for obstacle in pair.obstacles)
    else:
        yield _by_how_much(pair)
        yield _what_the_test_says(pair.conclusion)
    if pair.gate is not None:
        yield gate_verdict(pair.gate)
        yield from (f"  {line}" for _, line in gate_lines(pair.gate))
    yield from (f"note: {printable(note)}" for note in pair.notes)


def difference_rows(pair: SideBySide) -> Iterator[tuple[str, ...]]:
    """Every difference: its area, its name and both sides."""
    for one in pair.differences:
        sides = (NONE if v is None else printable(v, _LONGEST_VALUE) for v in (one.a, one.b))
        yield one.area, printable(one.name), *sides


def _time(result: Result) -> str:
    """What is compared, and of a scaled time what the clock said."""
    as_run = duration(result.minutes)
    return f"{duration(result.scaled_minutes)} scaled, {as_run} as run" if result.scaled else as_run


def _by_how_much(pair: SideBySide) -> str:
    a, b = pair.a.compared_minutes, pair.b.compared_minutes
    ratio = None if pair.conclusion is None else pair.conclusion.ratio
    if a is None or b is None or ratio is None:
        return "no difference in time: at least one side has no benchmark result"
    if ratio == 1:
        return f"benchmark results: both {duration(a)}"
    faster, share = ("A", 1 - 1 / ratio) if ratio > 1 else ("B", 1 - ratio)
    return (
        f"benchmark results: {duration(a)} and {duration(b)}, "
        f"{faster} takes {duration(abs(a - b))} or {share:.1%} less"
    )


def _what_the_test_says(found: Conclusion) -> str:
    if found.outcome == NOT_ENOUGH:
        return (
            f"not enough runs to say whether they differ: each side needs {FEWEST_RUNS} that "
            "converged, and none that did not"
        )
    if found.outcome == NO_SPREAD or found.test is None:
        return "spread below resolution: the runs of neither side differ, so nothing can be said"
    says = {
        A_FASTER: f"A is faster at {LEVEL:.0%}",
        B_FASTER: f"B is faster at {LEVEL:.0%}",
    }.get(found.outcome, f"no difference shown at {LEVEL:.0%}")
    low, high = found.typical_ci95 or (0.0, 0.0)
    test = found.test
    return (
        f"Welch's test on log time over all runs: {says} (t {test.t:.2f}, {test.degrees:.1f} "
        f"degrees of freedom, p {_p(test.p)}); B takes {found.typical:.3f} times as long as A, "
        f"95% interval {low:.3f} to {high:.3f}; nine times in ten it finds a difference of "
        f"{found.detectable:.1%}"
    )


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "below 0.001"
