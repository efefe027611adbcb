"""What the page shows at first: a table for each set of comparable results, and their charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import groupby

from fourmin.base.text import how_many, printable
from fourmin.report import columns
from fourmin.report.charts import rows, specs
from fourmin.report.charts.theme import PAGE
from fourmin.report.model import Comparison, Result
from fourmin.report.wording import FAILED, NONE, PENDING, PRACTICE, tables
from fourmin.rules.verdict import FAILS_HERE, INVALID, UNCHECKED

LONGEST_CHOICE = 60
FACET_WIDTH = 250
"""Pixels of one panel of the scaling chart."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, a quieter second line, and what it is sorted by."""

    text: str
    more: str = ""
    sort: float | str | None = None


@dataclass(frozen=True)
class Line:
    """A row of a table: the result, the address of its section, its cells."""

    result: Result
    anchor: str
    label: str
    cells: tuple[Cell, ...]

    @cached_property
    def facets(self) -> dict[str, list[str]]:
        """What a reader may choose it by."""
        result, software = self.result, self.result.software
        torch = f"torch {software['torch']}" if "torch" in software else ""
        found = {
            "round": [f"{result.source} {result.round}".strip()],
            "division": [result.division],
            "chip": [result.chip],
            "software": [str(software.get("framework", torch))],
            # Counts are of one result: nobody would choose by them.
            "evidence": [word for word in result.evidence if not any(map(str.isdigit, word))],
        }
        return {
            name: [printable(word, LONGEST_CHOICE) for word in words if word]
            for name, words in found.items()
        }


@dataclass(frozen=True)
class Figure:
    """A chart of the overview: its specification, and the rows that belong to each result."""

    name: str
    caption: str
    spec: specs.Spec
    most: int
    by_result: dict[str, list[rows.Row]]
    heading: str = ""
    """Of a figure with a section of its own."""


@dataclass(frozen=True)
class Table:
    """Results that may be compared."""

    name: str
    title: str
    lines: tuple[Line, ...]
    figures: tuple[Figure, ...] = ()

    @property
    def columns(self) -> list[int]:
        """The columns that say something of any of these results."""
        return [
            column
            for column in range(len(columns.PAGE))
            if any(line.cells[column].text != NONE for line in self.lines)
        ]


@dataclass(frozen=True)
class Overview:
    """The page's first view. `others` are campaigns that failed or never count."""

    headline: str
    tables: tuple[Table, ...]
    others: tuple[Table, ...]
    figures: tuple[Figure, ...]
    lines: tuple[Line, ...]
    """Every result that has a section, each once."""

    @cached_property
    def facets(self) -> dict[str, list[str]]:
        """What a reader may choose from, where there is a choice."""
        found: dict[str, set[str]] = {}
        for line in self.lines:
            for name, words in line.facets.items():
                found.setdefault(name, set()).update(words)
        return {name: sorted(words) for name, words in found.items() if len(words) > 1}


def overview(comparison: Comparison) -> Overview:
    results = comparison.results
    lines = _lines(comparison)
    of_result = {line.result.identity: line for line in lines}
    compared = [
        _table(f"table-{place}", title, [of_result[result.identity] for result in group])
        for place, (title, group) in enumerate(tables(results), start=1)
    ]
    others = [
        Table(name, heading.capitalize(), tuple(of_result[result.identity] for result in some))
        for name, heading, some in (
            ("failed", FAILED, comparison.failed),
            ("pending", PENDING, comparison.pending),
        )
        if some
    ] + [
        _table(
            f"practice-{place}",
            f"{PRACTICE.capitalize()}: {title}",
            [of_result[result.identity] for result in group],
        )
        for place, (title, group) in enumerate(tables(comparison.practice), start=1)
    ]
    counted = [of_result[result.identity] for result in rows.may_be_drawn(results)]
    figures = [_scaled(counted), *(_exposed(table) for table in compared)]
    return Overview(
        headline=_headline(comparison),
        tables=tuple(compared),
        others=tuple(others),
        figures=tuple(figure for figure in figures if figure is not None),
        lines=tuple(lines),
    )


def _headline(comparison: Comparison) -> str:
    results = comparison.results
    checked = [result for result in results if result.verified]
    kinds = Counter(result.status for result in checked)
    bad = [
        f"{kinds[kind]} {word}"
        for kind, word in ((UNCHECKED, "unchecked"), (FAILS_HERE, "failing"), (INVALID, "invalid"))
        if kinds[kind]
    ]
    parts = [
        how_many(len(checked), "result", ","),
        how_many(len({r.submitter for r in checked}), "submitter", ","),
        f"{sum(len(result.runs) for result in checked):,d} runs",
        *(bad or ["all valid"]),
    ]
    if len(checked) < len(results):
        parts.append(f"{len(results) - len(checked)} reported by others, not verified here")
    if comparison.failed:
        parts.append(f"{len(comparison.failed)} failed")
    if comparison.pending:
        parts.append(f"{len(comparison.pending)} pending")
    if comparison.practice:
        parts.append(f"{len(comparison.practice)} practice")
    return ", ".join(parts) if checked else "No benchmark result"


def _lines(comparison: Comparison) -> list[Line]:
    results = comparison.every
    return [
        Line(result, anchor, label, tuple(_cell(column, result) for column in columns.PAGE))
        for result, anchor, label in zip(
            results, _anchors(comparison), rows.labels(results), strict=True
        )
    ]


def _cell(column: columns.Column, result: Result) -> Cell:
    text = (column.on_page or column.say)(result)
    return Cell(text, column.more(result), column.sort(result))


def _anchors(comparison: Comparison) -> Iterator[str]:
    """An address for each result, made from its path, so that a link to it lasts: also on a page
    that another machine makes.
    """
    for result in comparison.every:
        path = comparison.local(result.path)
        yield f"result-{sha256(path.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _table(name: str, title: str, lines: Sequence[Line]) -> Table:
    figures = (_chips(name, lines), _times(name, lines))
    return Table(name, title, tuple(lines), tuple(one for one in figures if one is not None))


def _chips(table: str, lines: Sequence[Line]) -> Figure | None:
    shown = [line for line in lines if not line.result.apart]
    unit = rows.unit_of(line.result.compared_minutes for line in shown)
    drawn = {line.anchor: rows.chips_rows([line.result], [line.label], unit) for line in shown}
    if len({row["chips"] for found in drawn.values() for row in found}) < 2:
        return None
    return Figure(
        name=f"chips-{table}",
        caption="Time against chips, both axes logarithmic. A dot is a result, the line the best "
        "time with no more chips; dots are hollow, and no best, where a check fails or could not "
        "be made.",
        spec=specs.chips_chart(PAGE, specs.CONTAINER, unit),
        most=5000,
        by_result={anchor: found for anchor, found in drawn.items() if found},
    )


def _times(table: str, lines: Sequence[Line]) -> Figure | None:
    results = rows.may_be_drawn(line.result for line in lines)
    unit = rows.unit_of(run.minutes for result in results for run in result.runs)
    scaled = any(result.scaled for result in results)
    drawn = {
        line.anchor: rows.time_rows([line.result], [line.label], unit, scaled)
        for line in lines
        if not line.result.apart
    }
    if not any(drawn.values()):
        return None
    return Figure(
        name=f"times-{table}",
        caption="Time to train, scaled by the reference point where there is one. A dot is a run, "
        "the tall tick the benchmark result (the mean without the fastest and the slowest run), "
        "the short one the geometric mean of all runs, the line its 95% interval. Dots are hollow "
        "where a check fails or could not be made.",
        spec=specs.time_chart(PAGE, specs.CONTAINER, unit),
        most=20,
        by_result=drawn,
    )


def _scaled(lines: Sequence[Line]) -> Figure | None:
    """Each family's rows belong to its largest member, whose filter decides for them all."""
    names = {line.result.path: line.label for line in lines}
    drawn = rows.scaling_rows([line.result for line in lines], names)
    if not drawn:
        return None
    anchors = {line.label: line.anchor for line in lines}
    by_result: dict[str, list[rows.Row]] = {}
    for _, family in groupby(drawn, key=lambda row: row["family"]):
        members = list(family)
        last = members[-1]["label"]
        by_result[anchors[last]] = members
    return Figure(
        name="scaling",
        heading="Scaling",
        caption="Throughput against chips, for submitters with results of several sizes. The "
        "square is the smallest, the dashed line ideal scaling from it. Marks are hollow where a "
        "check fails or could not be made.",
        spec=specs.scaling_chart(PAGE, FACET_WIDTH),
        most=9,
        by_result=by_result,
    )


def _exposed(table: Table) -> Figure | None:
    by_result = {
        line.anchor: drawn
        for line in table.lines
        if not line.result.apart and (drawn := rows.exposed_rows([line.result], [line.label]))
    }
    if not by_result:
        return None
    return Figure(
        name=f"exposed-{table.name}",
        heading=f"Exposed communication: {table.title}",
        caption="Exposed communication: the part of a step that compute does not hide. A dot is a "
        "run's median step, the line goes to its 95th percentile.",
        spec=specs.exposed_chart(PAGE, specs.CONTAINER),
        most=20,
        by_result=by_result,
    )
