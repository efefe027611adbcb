"""The words that all text formats share: columns, and how a number reads."""

from __future__ import annotations

from collections.abc import Callable

from fourmin.report.model import ReportedRun, Result
from fourmin.text import printable

Column = tuple[str, Callable[[Result], str]]


def duration(minutes: float | None) -> str:
    """Minutes with their unit, in seconds below a minute; `-` for none."""
    if minutes is None:
        return "-"
    return f"{minutes * 60:.2f} s" if abs(minutes) < 1 else f"{minutes:.3f} min"


def interval(result: Result) -> str:
    """The 95% interval of the mean time."""
    if result.ci95 is None:
        return "-"
    low, high = result.ci95
    if abs(high) < 1:
        return f"{low * 60:.2f} to {high * 60:.2f} s"
    return f"{low:.3f} to {high:.3f} min"


def run_times(result: Result) -> str:
    """Every run, in run order: its time, or how it ended."""
    return ", ".join(_run_time(run) for run in result.runs) or "-"


def _run_time(run: ReportedRun) -> str:
    return printable(run.status) if run.minutes is None else duration(run.minutes)


def number(value: float | None, form: str) -> str:
    """A number in a format, or `-` for none."""
    return "-" if value is None else format(value, form)


def verdict(result: Result) -> str:
    """Whether the result is valid, and what was waived."""
    state = "" if result.state == "closed" else f"{result.state}, "
    valid = "valid" if result.valid else "INVALID"
    waivers = f", waived {' '.join(result.waivers)}" if result.waivers else ""
    return f"{state}{valid}{waivers}"


COLUMNS: tuple[Column, ...] = (
    ("submitter", lambda r: printable(r.submitter)),
    ("system", lambda r: printable(r.system)),
    ("chips", lambda r: number(r.chips, "d")),
    ("batch", lambda r: number(r.global_batch_size, ",d")),
    ("time", lambda r: duration(r.minutes)),
    ("95% interval", interval),
    ("CV", lambda r: number(r.cv, ".1%")),
    ("epochs", lambda r: number(r.epochs_mean, ".1f")),
    ("images/s", lambda r: number(r.images_per_second, ",.0f")),
    ("scaling", lambda r: number(r.scaling_efficiency, ".1%")),
    ("checked", verdict),
)
"""The columns of the text tables: a title and what it says of a result."""

DETAILS: tuple[Column, ...] = (
    ("runs", run_times),
    ("registration", lambda r: printable(r.registration)),
    ("campaigns", lambda r: str(r.campaigns)),
    ("path", lambda r: printable(r.path)),
)
"""What else is said of each result; its own columns where there is room."""


def title(result: Result) -> str:
    """What a table is about: results in different ones must not be compared."""
    parts = [f"{result.division} division", f"target {number(result.quality_target, 'g')}"]
    if result.dataset:
        parts.append(result.dataset)
    parts.append(f"clock of {result.clock}")
    return ", ".join(printable(part) for part in (result.benchmark, *parts))


def same_table(result: Result) -> tuple[str, str, str, str, float]:
    """Results are comparable only when these agree."""
    return result.comparable


def one_line(result: Result) -> str:
    """A result outside of the tables, in one line."""
    return (
        f"{printable(result.path)}: {printable(result.benchmark)}, {result.state}, "
        f"{len(result.runs)} runs ({run_times(result)}), {verdict(result)}"
    )
