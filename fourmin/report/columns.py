"""What tables say of each result: every column once, with how each format shows it.

CSV has the keys of JSON for columns, which scripts know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from fourmin.base.text import printable
from fourmin.report import wording
from fourmin.report.model import FOURMIN, Result
from fourmin.report.wording import NONE, NOT_SCALED, number

Say = Callable[[Result], str]
LONGEST_NAME = 24
"""Columns of the terminal that a name may take; the rest goes on in the next line."""
LONGEST_VERDICT = 28
# Somebody's long name must not push the numbers out of the table.
_NAME: Mapping[str, Any] = {"max_width": LONGEST_NAME}
_RIGHT: Mapping[str, Any] = {"justify": "right"}
_UNBROKEN: Mapping[str, Any] = {"no_wrap": True}


@dataclass(frozen=True)
class Column:
    """A heading and what stands below it: `-` where there is nothing to say of a result.

    `name` is the heading of text formats, `page` that of the page; empty where they do not have
    the column. `terminal` are rich's options. On the page, `more` is a quieter second line,
    `sort` what the column is sorted by, and `on_page` what it says instead.
    """

    name: str
    say: Say
    terminal: Mapping[str, Any] = field(default_factory=dict)
    page: str = ""
    more: Say = lambda result: ""
    sort: Callable[[Result], float | str | None] = lambda result: None
    kind: str = "number"
    """What `sort` gives: number or text."""
    on_page: Say | None = None
    wide: bool = False
    """Whether a narrow terminal says it beside the table instead."""
    falls: bool = False
    """Whether the page sorts the largest first, because more is better."""


def filled(
    columns: Sequence[Column], results: Sequence[Result]
) -> tuple[list[Column], list[tuple[str, ...]]]:
    """The columns that say something of any of these results, and a row of them for each."""
    said = [(column, [column.say(result) for result in results]) for column in columns]
    shown = [(column, texts) for column, texts in said if not set(texts) <= {NONE, NOT_SCALED}]
    return [column for column, _ in shown], list(zip(*(texts for _, texts in shown), strict=True))


def _figure(name: str, attribute: str, form: str, **how: Any) -> Column:
    """A number of the result with its format."""
    value = attrgetter(attribute)
    return Column(name, lambda r: number(value(r), form), _RIGHT, name, sort=value, **how)


def _converged(result: Result) -> list[float]:
    return [run.minutes for run in result.runs if run.minutes is not None]


def _spread(result: Result) -> str:
    times = _converged(result)
    several = result.verified and len(times) > 1
    return wording.between(min(times), max(times)) if several else ""


def _reference(result: Result) -> str:
    point = result.convergence.reference
    return "" if point is None else f"RCP {point.mean:.1f}, min {point.minimum:.1f}"


COLUMNS = (
    Column("#", lambda r: number(r.rank, "d"), _RIGHT),
    Column("submitter", lambda r: printable(r.submitter), _NAME),
    Column("system", lambda r: printable(r.system), _NAME, "submitter and system",
           lambda r: printable(r.submitter),
           lambda r: f"{printable(r.submitter)} {printable(r.system)}".casefold(), "text"),
    Column("", lambda r: number(r.rank, "d"), {}, "rank", sort=lambda r: r.rank),
    _figure("chips", "chips", "d", more=lambda r: printable(r.chip),
            on_page=lambda r: number(r.chips, ",d")),
    _figure("batch", "global_batch_size", ",d"),
    Column("scaled", wording.scaled, {**_RIGHT, **_UNBROKEN}),
    Column("time", lambda r: wording.time(r, r.minutes), {**_RIGHT, **_UNBROKEN}, "time to train",
           wording.as_run, lambda r: r.compared_minutes,
           on_page=lambda r: wording.time(r, r.compared_minutes)),
    Column("", wording.chip_minutes, {}, "chip-minutes", sort=lambda r: r.chip_minutes),
    Column("", lambda r: f"{len(_converged(r))} of {len(r.runs)}" if r.verified else "reported",
           {}, "runs converged", _spread, lambda r: len(_converged(r)) if r.verified else None),
    _figure("CV", "cv", ".1%", wide=True),
    Column("epochs/RCP", wording.epochs, {**_RIGHT, **_UNBROKEN}, "epochs", _reference,
           lambda r: r.epochs_mean, on_page=lambda r: number(r.epochs_mean, ".1f"), wide=True),
    _figure("images/s", "images_per_second", ",.0f", wide=True, falls=True),
    _figure("scaling", "scaling_efficiency", ".1%",
            more=lambda r: "" if r.baseline is None else f"against {r.baseline.chips:,d}",
            wide=True, falls=True),
    Column("", lambda r: printable(r.round) or NONE, {}, "round", lambda r: printable(r.source),
           lambda r: printable(f"{r.source} {r.round}"), "text"),
    Column("", lambda r: number(r.standing.campaigns, "d") if r.source == FOURMIN else NONE, {},
           "campaigns", lambda r: wording.campaigns(r).partition(", ")[2],
           lambda r: r.standing.campaigns),
    Column("", wording.evidence, {}, "evidence",
           lambda r: ", ".join(map(printable, r.evidence[1:])), wording.evidence,
           "text", on_page=lambda r: printable(next(iter(r.evidence), NONE))),
    Column("checked", wording.verdict, {"max_width": LONGEST_VERDICT}, "checked", wording.checks,
           lambda r: r.level if r.verified else 4, on_page=wording.short_verdict),
)  # fmt: skip

TEXT = tuple(column for column in COLUMNS if column.name)
"""The columns of the text tables."""
PAGE = tuple(column for column in COLUMNS if column.page)
"""Those of the page."""

DETAILS = (
    Column("not checked", wording.not_checked),
    Column("runs", wording.run_times),
    Column("95% interval", wording.interval),
    Column("tells differences from", wording.detectable),
    Column("warnings", wording.warnings),
    Column("accuracy", lambda r: wording.accuracy(r, r.quality)),
    Column("RCP", wording.reference_point),
    Column("scaling", wording.scaling),
    Column("exposed communication", wording.exposed),
    Column("steady rate", wording.steady),
    Column("started in", lambda r: wording.seconds(r.started_in_seconds)),
    Column("energy", wording.energy),
    Column("cost", wording.cost),
    Column("evidence", wording.evidence),
    Column("campaigns", wording.campaigns),
    Column("findings", wording.findings),
    Column("from", lambda r: printable(r.citation) or NONE),
    Column("path", lambda r: printable(r.path)),
)
"""What else is said of each result; its own columns where there is room."""
