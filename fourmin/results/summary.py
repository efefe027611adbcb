"""The benchmark result: what summary.json holds, made from the run results of a campaign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fourmin.results.plan import Plan
from fourmin.results.rcp import convergence
from fourmin.results.run_result import RunFacts
from fourmin.results.scoring import score
from fourmin.results.statistics import known_mean

_OF_A_RUN = ("run", "seed", "status", "minutes", "epochs", "quality")


def summarize(
    plan: Plan, campaign: str, ledger_head: str, runs: Sequence[RunFacts]
) -> dict[str, Any]:
    """The content of summary.json.

    `campaign` is the SHA-256 of campaign.json, `ledger_head` the SHA-256 of the ledger's
    last line before the close, `runs` what each run's log says, in run order.

    `scaled_minutes` is the score after reference convergence points: the same where there is
    none, more where the runs converged faster than the reference's mean, None where they did so
    beyond what is accepted.
    """
    scored = score([run.counted_minutes(plan.practice) for run in runs])
    return {
        "schema_version": 1,
        "campaign": campaign,
        "ledger_head": ledger_head,
        "benchmark": plan.benchmark,
        "division": plan.division,
        "practice": plan.practice,
        "minutes": scored.minutes,
        "scaled_minutes": scored.scaled(convergence(plan, runs).factor),
        "ci95": None if scored.ci95 is None else list(scored.ci95),
        "cv": scored.cv,
        "epochs_mean": known_mean(run.epochs for run in runs),
        "images_per_second": known_mean(run.images_per_second for run in runs),
        "runs": [{name: getattr(run, name) for name in _OF_A_RUN} for run in runs],
    }
