"""What rules check with, by the names of their functions' parameters, and what is said without it.

Some of it is missing only where another rule finds an error, some in a run that is under way or
was aborted; what is left makes a campaign that counts unchecked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fourmin.log import keys


@dataclass(frozen=True)
class Need:
    """`of` gives it for a view, None where it is missing; `missing` says so in words."""

    of: Callable[[Any], Any]
    missing: str


def _attribute(path: str, missing: str) -> Need:
    """An attribute of the view, or of one of its attributes."""
    *outer, last = path.split(".")

    def of(view: Any) -> Any:
        for name in outer:
            view = getattr(view, name)
            if view is None:
                return None
        return getattr(view, last)

    return Need(of, missing)


def _record(key: str) -> Need:
    """The first record of a key in a run's log."""
    return Need(
        lambda run: None if run.timeline is None else run.timeline.first(key),
        f"no {key} in the log",
    )


def _train_samples(run: Any) -> int | None:
    told = run.facts.train_samples
    return told if type(told) is int else None


NEEDS: dict[str, Need] = {
    # Of a campaign or a run.
    "plan": _attribute("plan", "no plan that can be read"),
    "benchmark": _attribute("benchmark", "a benchmark that is not known here"),
    # Of a campaign.
    "assignment": _attribute("history.seeds", "no seeds-assigned in the ledger"),
    "close": _attribute("history.close", "no campaign-close in the ledger"),
    "summary": _attribute("summary_document", "no summary.json"),
    # Of a run.
    "campaign": _attribute("campaign", "no campaign vouches for this run"),
    "history": _attribute("history", "the ledger tells nothing of this run"),
    "events": _attribute("events", "no event log"),
    "log": _attribute("log", "no event log"),
    "timeline": _attribute("timeline", "no event log"),
    "configuration": _attribute("configuration", "no configuration in the log"),
    "train_samples": Need(_train_samples, "no train_samples in the log"),
    "result": _attribute("result", "no result.json"),
    "init_start_ms": _attribute("timeline.init_start_ms", "no init_start in the log"),
    "init_stop_ms": _attribute("timeline.init_stop_ms", "no init_stop in the log"),
    "run_start_ms": _attribute("timeline.run_start_ms", "no run_start in the log"),
    "package": _record(keys.PACKAGE_DIGEST),
    "system": _record(keys.SYSTEM),
    "configured": _record(keys.CONFIGURATION),
    "described": _record(keys.DATASET),
    "first_loss": _record(keys.STEP_LOSS),
    "order": _record(keys.DATA_ORDER_DIGEST),
}
