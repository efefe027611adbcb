"""A campaign of this project as a report shows it, its numbers made anew from the event logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fourmin.base.values import mapping
from fourmin.ledger.view import CampaignView
from fourmin.report.model import Result
from fourmin.report.runs import reported
from fourmin.results.plan import Plan
from fourmin.results.rcp import Convergence, convergence
from fourmin.results.summary import summarize
from fourmin.rules.verdict import Verdict
from fourmin.ruleset import Benchmark


def campaign_result(campaign: CampaignView, verdict: Verdict) -> Result:
    """One campaign; whatever its files do not give is None."""
    plan, benchmark = campaign.plan, campaign.benchmark
    runs, history = campaign.runs, campaign.history
    practice = plan is not None and plan.practice
    facts = [run.facts for run in runs]
    summary = summarize(plan, campaign.digest, "", facts) if plan and runs else {}
    configuration = plan.configuration if plan else {}
    state = "closed" if history.close else "abandoned" if history.abandon else "unfinished"
    score = summary if plan and state == "closed" and len(runs) == plan.runs else {}
    interval = score.get("ci95")
    system = next((mapping(f.system) for f in facts if f.system), {})
    return Result(
        source="fourmin",
        path=campaign.path,
        submitter=plan.submitter if plan else "unknown",
        system=plan.system if plan else "unknown",
        benchmark=plan.benchmark if plan else "unknown",
        division=plan.division if plan else "unknown",
        chips=_chips(campaign),
        global_batch_size=configuration.get("global_batch_size"),
        quality_target=None if benchmark is None else benchmark.quality_target,
        runs=tuple(reported(run.path, run.facts, run.timeline, practice) for run in runs),
        minutes=score.get("minutes"),
        scaled_minutes=score.get("scaled_minutes"),
        ci95=(interval[0], interval[1]) if interval else None,
        cv=score.get("cv"),
        epochs_mean=summary.get("epochs_mean"),
        images_per_second=summary.get("images_per_second"),
        state=state,
        practice=practice,
        verdict=verdict,
        registration=str((history.seeds.data if history.seeds else {}).get("registration", "none")),
        group=(
            "fourmin",
            plan and (plan.ruleset, plan.benchmark, plan.division),
            plan and (plan.submitter, plan.system_digest),
            configuration.get("global_batch_size"),
            _accelerators_used(configuration),
        ),
        identity=campaign.digest or campaign.path,
        dataset=_dataset(plan, benchmark) if plan and benchmark else "",
        round=plan.ruleset if plan else "",
        chip=_chip(configuration, mapping(system.get("hardware"))),
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
    """The benchmark's dataset; where the benchmark does not pin its bytes, with their digest."""
    name = str(benchmark.dataset.get("name", ""))
    if benchmark.dataset.get("train_digest") is not None:
        return name
    return f"{name} {plan.dataset['train_digest'][:12]}"


def _chips(campaign: CampaignView) -> int | None:
    """Accelerators that trained, over all nodes; on the CPU, processor sockets."""
    for run in campaign.runs:
        configuration = run.configuration
        if not isinstance(run.facts.system, dict) or configuration is None:
            continue
        if configuration.device == "cuda":
            return configuration.workers
        sockets = mapping(run.facts.hardware.get("processor")).get("sockets")
        return sockets * configuration.nodes if isinstance(sockets, int) else None
    return None


def _accelerators_used(configuration: Mapping[str, Any]) -> int | None:
    """One GPU of a machine with two is another system than both, though it has the same digest.

    None on the CPU, where any number of workers shares the same chips.
    """
    if configuration.get("device") != "cuda":
        return None
    return int(configuration["nodes"] * configuration["procs_per_node"])


def _chip(configuration: Mapping[str, Any], hardware: Mapping[str, Any]) -> str:
    """Model of what trained: the accelerators, or the processor."""
    if configuration.get("device") != "cuda":
        return str(mapping(hardware.get("processor")).get("model") or "")
    accelerators = hardware.get("accelerators")
    if not isinstance(accelerators, list):
        return ""
    return ", ".join(sorted({str(mapping(kind).get("model")) for kind in accelerators}))


def _environment(system: Mapping[str, Any]) -> dict[str, Any]:
    changes = system.get("interpreter_changes")
    found = dict(mapping(system.get("environment")))
    return {**found, "interpreter changes": changes} if changes else found
