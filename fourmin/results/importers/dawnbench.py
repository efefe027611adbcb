"""DAWNBench's ImageNet training entries: a JSON description and a TSV of accuracy over time.

The score is the time in the first row whose top-5 accuracy is at least 93%. Columns are found by
their names, in any order; a line may end in LF, CR LF or CR.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from pathlib import Path

from fourmin.base.canonical import JSON
from fourmin.log import keys
from fourmin.log.reader import EventLog, LogProblem, without_records
from fourmin.log.records import LATEST_MS, MLLOG, Record
from fourmin.results.importers.files import head, read_somebodys
from fourmin.results.importers.model import (
    DAWNBENCH,
    ForeignRun,
    ForeignSet,
    read_object,
)
from fourmin.results.importers.rounds import DAWNBENCH_RULES, TOP5_TARGET

COLUMNS = ("epoch", "hours", "top1Accuracy", "top5Accuracy")
BENCHMARK = "imagenet-top5"
MAX_TSV_BYTES = 4 * 1024 * 1024
MOST_ROWS = 100_000
_MS_AN_HOUR = 3_600_000
_LINE_END = re.compile(r"\r\n|\n|\r")


def is_table(path: Path) -> bool:
    """Whether a file begins as such a table does."""
    first = _LINE_END.split(head(path, 1024).decode("utf-8", "replace"), maxsplit=1)[0]
    return {"hours", "top5accuracy"} <= {name.strip().lower() for name in first.split("\t")}


def entries_in(folder: Path, names: list[str]) -> list[str]:
    """The entries in a folder, by the name of the JSON file, or of the table that has none."""
    known = set(names)
    found = []
    for name in names:
        if name.lower().endswith(".tsv") and is_table(folder / name):
            description = f"{name[:-4]}.json"
            found.append(description if description in known else name)
    return sorted(found)


def load_entry(file: Path, path: str) -> ForeignSet:
    """One entry, named by its JSON file or its table."""
    stem, shown = os.path.splitext(file)[0], os.path.splitext(path)[0]
    table = Path(f"{stem}.tsv")
    found = ForeignSet(DAWNBENCH, path, BENCHMARK, described=True)
    if os.path.lexists(f"{stem}.json"):
        found.description_path = f"{shown}.json"
        file = Path(f"{stem}.json")
        found.description = read_object(found, file, found.description_path)
        if found.description is not None:
            found.submitter = _text(found.description.get("author"))
            found.system = _text(found.description.get("hardware"))
    log = read_somebodys(table, MAX_TSV_BYTES, read_table)
    found.runs = (ForeignRun(DAWNBENCH, f"{shown}.tsv", log, DAWNBENCH_RULES),)
    return found


def read_table(data: bytes) -> EventLog:
    """The table as the event log of a run that ends at the first row with the target.

    Times are ms since the start; an accuracy is that of the top 5, as a fraction.
    """
    problems: list[LogProblem] = []
    lines = _LINE_END.split(data.decode("utf-8-sig", "replace"))
    header = [name.strip().lower() for name in lines[0].split("\t")]
    places = {
        name: header.index(name.lower()) if name.lower() in header else None for name in COLUMNS
    }
    if places["hours"] is None or places["top5Accuracy"] is None:
        problem = LogProblem("no-records", 1, "no columns `hours` and `top5Accuracy`")
        return without_records(problem, len(data))
    records = [_record(1, keys.RUN_START, None, 0.0, {})]
    reached, last_ms, last_line = False, 0.0, 1
    for number, line in enumerate(lines[1 : MOST_ROWS + 1], 2):
        if not line.strip():
            continue
        cells = line.split("\t")
        epoch, hours, top1, top5 = (_number(cells, places[name]) for name in COLUMNS)
        time_ms = None if hours is None else hours * _MS_AN_HOUR
        if time_ms is None or abs(time_ms) > LATEST_MS or top5 is None:
            what = "a row without time or accuracy"
            problems.append(LogProblem("malformed-record", number, what))
            continue
        metadata: dict[str, JSON] = {keys.EPOCH_NUM: epoch, "top1": top1}
        accuracy = top5 / 100
        records.append(_record(number, keys.EVAL_ACCURACY, accuracy, time_ms, metadata))
        if not reached:
            reached, last_ms, last_line = accuracy >= TOP5_TARGET, time_ms, number
            if reached:
                stop = _record(last_line, keys.RUN_STOP, None, last_ms, {keys.STATUS: keys.SUCCESS})
                records.append(stop)
    if not reached:
        status: dict[str, JSON] = {keys.STATUS: keys.ABORTED}
        records.append(_record(last_line, keys.RUN_STOP, None, last_ms, status))
    if len(lines) - 1 > MOST_ROWS:
        problems.append(LogProblem("too-many-records", MOST_ROWS, f"more than {MOST_ROWS} rows"))
    counts = dict(Counter(problem.kind for problem in problems))
    return EventLog(tuple(records), tuple(problems[:100]), counts, len(data), False)


def _record(line: int, key: str, value: JSON, time_ms: float, metadata: dict[str, JSON]) -> Record:
    return Record(line, "", time_ms, keys.POINT_IN_TIME, key, value, metadata, MLLOG)


def _number(cells: list[str], place: int | None) -> float | None:
    if place is None or place >= len(cells) or len(cells[place]) > 64:
        return None
    try:
        value = float(cells[place].strip().rstrip("%"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else ""
