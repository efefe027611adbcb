"""The benchmark result: what summary.json holds, made from the run results of a campaign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fourmin.results.plan import Plan
from fourmin.results.rcp import convergence
from fourmin.results.run_result import ABORTED, CONVERGED
from fourmin.results.scoring import score
from fourmin.results.statistics import mean


def counted_minutes(result: Mapping[str, Any], practice: bool) -> float | None:
    """The minutes with which a run counts, None where it counts as not converged.

    In practice there is no target to reach: every run that ended of itself counts.
    """
    status = result.get("status")
    counts = status == CONVERGED or (practice and status != ABORTED)
    minutes = result.get("minutes")
    return float(minutes) if counts and isinstance(minutes, (int, float)) else None


def summarize(
    plan: Plan, campaign: str, ledger_head: str, results: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The content of summary.json.

    `campaign` is the SHA-256 of campaign.json, `ledger_head` the SHA-256 of the ledger's
    last line before the close, `results` one run result for each run, in run order.

    `scaled_minutes` is the score after reference convergence points: the same where there is
    none, more where the runs converged faster than the reference's mean, None where they did so
    beyond what is accepted.
    """
    practice = plan.practice
    minutes = [counted_minutes(result, practice) for result in results]
    scored = score(minutes)
    epochs = [r["epochs"] for r in results if isinstance(r["epochs"], (int, float))]
    rates = [
        r["images_per_second"] for r in results if isinstance(r["images_per_second"], (int, float))
    ]
    return {
        "schema_version": 1,
        "campaign": campaign,
        "ledger_head": ledger_head,
        "benchmark": plan.benchmark,
        "division": plan.division,
        "practice": practice,
        "minutes": scored.minutes,
        "scaled_minutes": _scaled(scored.minutes, convergence(plan, results).factor),
        "ci95": None if scored.ci95 is None else list(scored.ci95),
        "cv": scored.cv,
        "epochs_mean": mean(epochs) if epochs else None,
        "images_per_second": mean(rates) if rates else None,
        "runs": [
            {
                "run": result["run"],
                "seed": result["seed"],
                "status": result["status"],
                "minutes": result["minutes"],
                "epochs": result["epochs"],
                "quality": result["quality"],
            }
            for result in results
        ],
    }


def _scaled(minutes: float | None, factor: float | None) -> float | None:
    return None if minutes is None or factor is None else minutes * factor
