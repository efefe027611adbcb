"""A campaign of this project as a report shows it, its numbers made anew from the event logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fourmin.base.values import mapping
from fourmin.ledger.audits import audit_words
from fourmin.ledger.landings import SELF, Landing
from fourmin.ledger.registered import GONE
from fourmin.ledger.view import CampaignView
from fourmin.recipe.algorithms import NEVER_REPLAYED, SYNCHRONOUS, WAITING
from fourmin.report.model import ABANDONED, CLOSED, PENDING, Planned, Result
from fourmin.report.runs import reported
from fourmin.results.plan import Plan
from fourmin.results.rcp import Convergence, convergence
from fourmin.results.summary import summarize
from fourmin.rules.clock import APART_MS
from fourmin.rules.verdict import INVALID, Verdict
from fourmin.ruleset import Benchmark

PENDING_DAYS = 30
_DAY_MS = 86_400_000


def campaign_result(campaign: CampaignView, verdict: Verdict, now_ms: int) -> Result:
    """One campaign; whatever its files do not give is None."""
    plan, benchmark = campaign.plan, campaign.benchmark
    runs, history = campaign.runs, campaign.history
    practice = plan is not None and plan.practice
    facts = [run.facts for run in runs]
    summary = summarize(plan, campaign.digest, "", facts) if plan and runs else {}
    configuration = plan.configuration if plan else {}
    algorithm = configuration.get("algorithm", SYNCHRONOUS)
    registration = campaign.registration
    landed = registration.landing
    gone = registration.unproved == GONE
    given_up = gone or history.abandon or (landed and not landed.stands)
    state = CLOSED if history.close and not gone else ABANDONED if given_up else "unfinished"
    waits = registration.word != SELF and verdict.status != INVALID
    if state == "unfinished" and plan and waits:
        since = now_ms - (landed.time_ms if landed else plan.created_ms)
        state = PENDING if -APART_MS <= since <= PENDING_DAYS * _DAY_MS else state
    score = summary if plan and state == CLOSED and len(runs) == plan.runs else {}
    interval = score.get("ci95")
    system = next((mapping(f.system) for f in facts if f.system), {})
    return Result(
        source="fourmin",
        path=campaign.path,
        submitter=campaign.submitter,
        system=plan.system if plan else "unknown",
        benchmark=plan.benchmark if plan else "unknown",
        division=plan.division if plan else "unknown",
        chips=plan.chips if plan else None,
        global_batch_size=configuration.get("global_batch_size"),
        quality_target=None if benchmark is None else benchmark.quality_target,
        runs=tuple(
            reported(
                run.path,
                run.facts,
                run.timeline,
                practice,
                None if run.history is None else run.history.started_in_seconds,
            )
            for run in runs
        ),
        minutes=score.get("minutes"),
        scaled_minutes=score.get("scaled_minutes"),
        ci95=(interval[0], interval[1]) if interval else None,
        cv=score.get("cv"),
        epochs_mean=summary.get("epochs_mean"),
        images_per_second=summary.get("images_per_second"),
        state=state,
        practice=practice,
        verdict=verdict,
        registration=registration.word,
        registered=(
            *registration.evidence,
            *(["signed"] if campaign.signing.proved else []),
            *([] if algorithm in WAITING else [f"{algorithm}: {NEVER_REPLAYED}"]),
            *audit_words(campaign.audits, now_ms),
        ),
        planned=_planned(plan, campaign, landed) if plan else None,
        nodes=configuration.get("nodes"),
        group=(
            "fourmin",
            registration.word == SELF,
            (plan.ruleset, plan.benchmark, plan.division) if plan else campaign.path,
            plan and (campaign.submitter, plan.system_kind),
        ),
        identity=campaign.digest or campaign.path,
        dataset=_dataset(plan, benchmark) if plan and benchmark else "",
        round=plan.ruleset if plan else "",
        chip=plan.chip if plan else "",
        convergence=convergence(plan, facts) if plan and runs else Convergence(None, None),
        configuration=configuration,
        hyperparameters=next((f.hyperparameters for f in facts if f.hyperparameters), {}),
        hardware=mapping(system.get("hardware")),
        software={
            **mapping(system.get("software")),
            **({"package_digest": plan.package_digest} if plan else {}),
        },
        environment=_environment(system),
        ledger=tuple(campaign.entries),
    )


def _dataset(plan: Plan, benchmark: Benchmark) -> str:
    """The benchmark's dataset; where the benchmark does not pin its bytes, with their digests."""
    said = benchmark.dataset
    open_splits = [
        s for s in ("train", "eval") if not (said.get(f"{s}_pin") or said.get(f"{s}_digest"))
    ]
    here = plan.dataset
    known = [here.get(f"{s}_pin") or here[f"{s}_digest"] for s in open_splits]
    return " ".join([str(said.get("name", "")), *(one[:12] for one in known)])


def _planned(plan: Plan, campaign: CampaignView, landed: Landing | None) -> Planned:
    runs = campaign.history.runs.values()
    return Planned(
        landed=landed,
        ranked_batch=plan.ranked_batch,
        earlier=frozenset(one.campaign for one in plan.earlier_campaigns),
        practice=len(plan.practice_campaigns),
        retries=sum(len(run.intents) - (run.start is not None) for run in runs),
    )


def _environment(system: Mapping[str, Any]) -> dict[str, Any]:
    changes = system.get("interpreter_changes")
    found = dict(mapping(system.get("environment")))
    return {**found, "interpreter changes": changes} if changes else found
