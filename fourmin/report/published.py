"""What others published: times as they reported them, none of them checked here."""

from __future__ import annotations

from typing import Any

from fourmin.base.canonical import loads_strict
from fourmin.report.foreign import DATASETS, MLPERF_DATASET
from fourmin.report.model import PUBLISHED, Result
from fourmin.report.runs import ReportedRun
from fourmin.results.importers.model import DAWNBENCH
from fourmin.results.run_result import RunFacts
from fourmin.rules.verdict import Verdict
from fourmin.ruleset import CURRENT, load_ruleset

FILE = "published_results.json"
REPORTED = "reported"
"""The status of a published run, and the division of its result: nobody checked any limit."""
_CONFIRMED = {"all": "", "time": ", which gives the time alone", "table": ""}


def published_results() -> list[Result]:
    """Every published result of the current ruleset's list."""
    data: Any = loads_strict((load_ruleset(CURRENT).folder / FILE).read_bytes())
    return [_result(row) for row in data["results"]]


def _result(row: dict[str, Any]) -> Result:
    path = f"{PUBLISHED}:{row['id']}"
    run = ReportedRun(
        path=path,
        facts=RunFacts(status=REPORTED, quality=row["top1"]),
        minutes=row["minutes"],
    )
    return Result(
        source=PUBLISHED,
        path=path,
        submitter=f"{row['team']} {row['year']}",
        system=f"{row['chips']} x {row['chip']}",
        benchmark=row["benchmark"],
        division=REPORTED,
        chips=row["chips"],
        global_batch_size=row["global_batch_size"],
        quality_target=row["quality_target"],
        runs=(run,),
        minutes=row["minutes"],
        verdict=Verdict(path, PUBLISHED),
        group=path,
        identity=path,
        dataset=DATASETS[DAWNBENCH] if row["clock"] == "DAWNBench" else MLPERF_DATASET,
        clock=row["clock"],
        chip=row["chip"],
        citation=row["source"] + _CONFIRMED[row["confirmed"]],
    )
