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
    NO_DIFFERENCE,
    NO_SPREAD,
    NOT_ENOUGH,
    UNTOLD,
    Conclusion,
    SideBySide,
)
from fourmin.report.wording import NONE, duration, interval, run_times, verdict

_LONGEST_VALUE = 300
WORDS = {
    "no time": "no difference in time: at least one side has no benchmark result",
    "both": "benchmark results: both {a}",
    "less": "benchmark results: {a} and {b}, {faster} takes {by} or {share} less",
    NOT_ENOUGH: f"not enough runs to say whether they differ: each side needs {FEWEST_RUNS} that "
    "converged, and none that did not",
    NO_SPREAD: "spread below resolution: the runs of neither side differ, so nothing can be said",
    A_FASTER: f"A is faster at {LEVEL:.0%}",
    B_FASTER: f"B is faster at {LEVEL:.0%}",
    NO_DIFFERENCE: f"no difference shown at {LEVEL:.0%}",
    "test": "Welch's test on log time over all runs: {says} (t {t}, {degrees} degrees of freedom, "
    "p {p}); B takes {ratio} times as long as A, 95% interval {low} to {high}; nine times in ten "
    "it finds a difference of {found}",
    "untold": UNTOLD,
}
"""What the times say; the page says it in the same words (`compare.js`)."""


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
        return WORDS["no time"]
    if ratio == 1:
        return WORDS["both"].format(a=duration(a))
    faster, share = ("A", 1 - 1 / ratio) if ratio > 1 else ("B", 1 - ratio)
    return WORDS["less"].format(
        a=duration(a), b=duration(b), faster=faster, by=duration(abs(a - b)), share=f"{share:.1%}"
    )


def _what_the_test_says(found: Conclusion) -> str:
    test = found.test
    if test is None:
        return WORDS[found.outcome]
    low, high = found.typical_ci95 or (0.0, 0.0)
    return WORDS["test"].format(
        says=WORDS[found.outcome],
        t=f"{test.t:.2f}",
        degrees=f"{test.degrees:.1f}",
        p=f"{test.p:.3f}" if test.p >= 0.001 else "below 0.001",
        ratio=f"{found.typical:.3f}",
        low=f"{low:.3f}",
        high=f"{high:.3f}",
        found=f"{found.detectable:.1%}",
    )
