"""What a submission's section is built from: words and chart rows, as JSON in the page.

All text is made printable here, and numbers read as they do in the other formats.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from fourmin.base.text import printable
from fourmin.recipe.presets import PRESETS, load_preset
from fourmin.report import wording
from fourmin.report.charts import rows, specs
from fourmin.report.charts.theme import PAGE
from fourmin.report.columns import DETAILS
from fourmin.report.model import FOURMIN, Result
from fourmin.report.page.overview import Figure, Line, Overview
from fourmin.report.pair_wording import WORDS
from fourmin.report.runs import ReportedRun
from fourmin.report.side_by_side import (
    NOTES,
    OBSTACLES,
    log_times,
    may_differ,
    must_be_same,
    own_notes,
    shown_value,
    why_apart,
)
from fourmin.report.wording import NONE, as_run, counts, number, seconds, title, verdict

Pairs = list[tuple[str, str]]

RUNS = (
    "run", "ended", "started in", "time", "steady rate", "epochs", "accuracy", "images/s",
    "exposed ms", "95th percentile", "energy", "seed",
)  # fmt: skip
_DEEPEST = 4


def page_data(view: Overview) -> dict[str, Any]:
    return {
        "templates": {
            f"{name} {unit}": make(PAGE, specs.CONTAINER, unit)
            for name, make in (
                ("accuracy", specs.accuracy_chart),
                ("timeline", specs.timeline_chart),
            )
            for unit in (rows.MINUTES, rows.SECONDS)
        }
        | {"exposed": specs.exposed_chart(PAGE, specs.CONTAINER, by_run=True)},
        "figures": [_figure(figure) for figure in _figures(view)],
        "runs": RUNS,
        "words": WORDS,
        "obstacles": list(OBSTACLES.values()),
        "notes": list(NOTES.values()),
        "choices": list(view.facets),
        "results": {line.anchor: _section(line) for line in view.lines},
    }


def _figures(view: Overview) -> Iterator[Figure]:
    for table in (*view.tables, *view.others):
        yield from table.figures
    yield from view.figures


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "spec": figure.spec,
        "most": figure.most,
        "rows": {anchor: _columnar(drawn) for anchor, drawn in figure.by_result.items()},
    }


def _columnar(drawn: Sequence[rows.Row]) -> dict[str, Any]:
    """Rows as one list a column, texts as a list of each once and places in it (`rowsOf`): a
    fifth of the bytes.
    """
    names = dict.fromkeys(name for row in drawn for name in row)
    return {name: _column([row.get(name) for row in drawn]) for name in names}


def _column(values: list[Any]) -> Any:
    if not any(isinstance(value, str) for value in values):
        return values
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return {"of": list(places), "at": [places[value] for value in values]}


def _section(line: Line) -> dict[str, Any]:
    result = line.result
    unit = rows.unit_of(rows.run_times(result.runs))
    charts = {
        f"accuracy {unit}": rows.accuracy_rows(result, unit),
        f"timeline {unit}": rows.timeline_rows(result, unit),
        "exposed": rows.exposed_rows([result], [line.label]),
    }
    return {
        "title": line.label,
        "table": title(result),
        "facets": line.facets,
        "pair": _side(result),
        "key": _key(result),
        "facts": _facts(result),
        "runs": [_run(result, *run) for run in enumerate(result.runs, start=1)],
        "charts": {name: _columnar(drawn) for name, drawn in charts.items() if drawn},
        "findings": [
            [
                finding.severity,
                finding.code,
                finding.name,
                _place(finding.path, finding.line, result.path),
                printable(finding.message),
                printable(finding.hint),
                "" if finding.waived is None else printable(finding.waived),
            ]
            for finding in result.verdict.findings
        ],
        "evidence": list(_evidence(result)),
        "settings": [
            (heading, list(_flat(values)))
            for heading, values in (
                *_beside_preset(result),
                ("Configuration", result.configuration),
                ("Hardware", result.hardware),
                ("Software", result.software),
                ("Environment", result.environment),
            )
            if values
        ],
        "ledger": [
            [
                str(entry.index),
                _moment(entry.time_ms),
                printable(entry.kind),
                "; ".join(f"{name} {value}" for name, value in _flat(entry.data)),
                entry.sha256[:16],
            ]
            for entry in result.ledger
        ],
    }


def _beside_preset(result: Result) -> Iterator[tuple[str, dict[str, str]]]:
    """What is not as in the preset, as this version has it, that the configuration began with."""
    name = result.configuration.get("preset")
    if result.source != FOURMIN or name not in PRESETS:
        return
    preset, own = (
        dict(_flat(values)) for values in (load_preset(name).to_json(), result.configuration)
    )
    changed = {
        key: f"{value}, in the preset {preset.get(key, NONE)}"
        for key, value in own.items()
        if value != preset.get(key)
    }
    yield f"What differs from the preset {name}", changed


def _evidence(result: Result) -> Iterator[tuple[str, str, str]]:
    """Each piece of evidence, what it says of this result, and the command that verifies it.

    The commands are for the folder in which the report was made, in a clone with its history.
    """
    if not result.verified:
        yield "reported", printable(result.citation), "nothing here: the source has it"
        return
    path = printable(shlex.quote(result.path))
    validate, report = f"fourmin validate {path}", f"fourmin report -v {path}"
    yield "rules", verdict(result), validate
    for code, reason in result.verdict.reasons.items():
        yield f"not checked: {code}", printable(reason), f"fourmin rules {code}"
    if result.registered:
        yield "registration", printable(", ".join(result.registered)), f"{validate} -v"
    if result.scaled:
        yield "reference point", wording.reference_point(result), report
    if result.source == FOURMIN:
        known = [word for word in result.evidence if any(map(str.isdigit, word))]
        yield "campaigns", ", ".join([wording.campaigns(result), *known]), report
    if result.minutes is not None and result.source == FOURMIN:
        seeds = "initial weights, data order, first losses"
        yield "seeds", seeds, f"fourmin audit {path}"


def _side(result: Result) -> dict[str, Any]:
    """What `compare.js` needs to say of two results what `fourmin report --compare` says."""
    return {
        "source": result.source,
        "path": printable(result.path),
        "minutes": result.compared_minutes,
        "logs": log_times(result),
        "same": list(map(printable, must_be_same(result).values())),
        "differ": list(map(printable, may_differ(result).values())),
        "apart": printable(why_apart(result)),
        "notes": [printable(note) for note in own_notes(result)],
        "logged": None
        if result.hyperparameters == result.configuration
        else list(_flat(result.hyperparameters)),
    }


def _key(result: Result) -> list[tuple[str, str, str]]:
    """The figures that are read first: a name, the figure, and what it must not stand without."""
    converged = sum(run.minutes is not None for run in result.runs)
    found = [
        (
            "time to train",
            wording.time(result, result.compared_minutes),
            as_run(result),
        ),
        (
            "runs converged",
            f"{converged} of {len(result.runs)}",
            "" if result.cv is None else f"CV {result.cv:.1%}",
        ),
        ("chips", number(result.chips, ",d"), printable(result.chip)),
        ("throughput", number(result.images_per_second, ",.0f"), "images/s"),
        (
            "checked",
            verdict(result) if result.verified else "not verified here",
            counts(result),
        ),
    ]
    return [(name, text, more) for name, text, more in found if text != NONE]


def _facts(result: Result) -> Pairs:
    """What the other formats say of a result beside its table, but for what has its own table."""
    told = [
        ("submitter", printable(result.submitter)),
        ("system", printable(result.system)),
        ("source", " ".join(printable(part) for part in (result.source, result.round) if part)),
        ("batch", number(result.global_batch_size, ",d")),
        ("mean epochs", number(result.epochs_mean, ".2f")),
        *((c.name, c.say(result)) for c in DETAILS if c.name not in ("runs", "findings")),
    ]
    return [(name, text) for name, text in told if text != NONE]


def _run(result: Result, place: int, run: ReportedRun) -> list[str]:
    communication, energy = run.communication, run.energy
    ended = printable(run.facts.status)
    if run.facts.failure:
        ended += f": {printable(run.facts.failure)}"
    return [
        str(place),
        ended,
        seconds(run.started_in_seconds),
        wording.time(result, run.minutes),
        number(run.steady_share, ".1%"),
        number(run.facts.epochs, "g"),
        wording.accuracy(result, run.facts.quality),
        number(run.facts.images_per_second, ",.0f"),
        NONE if communication is None else f"{communication.exposed_ms_median:.3g}",
        NONE if communication is None else f"{communication.exposed_ms_p95:.3g}",
        NONE if energy is None else f"{energy.joules:,.0f} J",
        NONE if run.facts.seed is None else printable(run.facts.seed),
    ]


def _place(path: str, line: int | None, below: str) -> str:
    """Where a finding is, relative to its result's folder."""
    short = path.removeprefix(below).lstrip("/") or "the whole result"
    return printable(short if line is None else f"{short}:{line}")


def _flat(values: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, str]]:
    """Names and values of nested objects, in order, names joined by dots."""
    for name, value in values.items():
        full = f"{prefix}{printable(name)}"
        if isinstance(value, Mapping) and value and depth < _DEEPEST:
            yield from _flat(value, f"{full}.", depth + 1)
        else:
            yield full, printable("null" if value is None else shown_value(value), 2000)


def _moment(time_ms: Any) -> str:
    """A time of the ledger in UTC; as it is written where it is none."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    except (TypeError, ValueError, OverflowError, OSError):
        return printable(time_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S")
