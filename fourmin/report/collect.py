"""From paths to results: every campaign below them, checked, with its numbers made anew."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fourmin.errors import FourminError
from fourmin.ledger.view import CampaignView, RunView
from fourmin.report.foreign import foreign_result
from fourmin.report.model import Comparison, ReportedRun, Result, compare
from fourmin.results import tree
from fourmin.results.summary import counted_minutes, summarize
from fourmin.rules.engine import check_campaigns, load_campaign
from fourmin.rules.foreign.check import check_foreign, collector_paused, load_foreign
from fourmin.rules.rule import Finding
from fourmin.ruleset import CURRENT, Benchmark


def collect(paths: Sequence[Path]) -> Comparison:
    """Everything at `paths` and below them, ready to be rendered.

    Raises FourminError for a path that does not exist.
    """
    return compare(CURRENT, _results(paths))


def _results(paths: Sequence[Path]) -> Iterator[Result]:
    seen: set[str] = set()
    campaigns: list[CampaignView] = []
    for given in paths:
        if not os.path.lexists(given):
            raise FourminError(f"no {given}", next_step="name a campaign, or a folder of them")
        for target in tree.find_targets(os.fspath(given)):
            if target.identity in seen:
                continue
            seen.add(target.identity)
            if target.kind in tree.FOREIGN_KINDS:
                yield from _foreign(target)
            elif target.kind == tree.CAMPAIGN:
                campaigns.append(load_campaign(target.folder, target.path))
    findings = check_campaigns(campaigns)
    for campaign in campaigns:
        yield campaign_result(campaign, findings[campaign.path])


def _foreign(target: tree.Target) -> Iterator[Result]:
    """A row for another benchmark's result; a single log is a run and none."""
    with collector_paused():
        found = load_foreign(target)
        if target.kind == tree.MLPERF_RUN or not found.judged or not found.runs:
            return
        findings = check_foreign(found)
        # One run that did not converge makes no set invalid: it is the dropped slowest.
        valid = not any(f.fails and f.code != "RUN009" for f in findings)
        result = foreign_result(found, len(findings), valid)
        del found
    yield result


def campaign_result(campaign: CampaignView, findings: Sequence[Finding]) -> Result:
    """One campaign as a report shows it; whatever its files do not give is None."""
    plan = campaign.plan or {}
    practice = bool(plan.get("practice", False))
    runs = campaign.runs
    summary = (
        summarize(plan, campaign.digest, "", [run.facts for run in runs]) if plan and runs else None
    )
    configuration = plan.get("configuration") or {}
    benchmark = campaign.benchmark
    kinds = [entry.kind for entry in campaign.entries]
    state = "unfinished"
    if "campaign-close" in kinds:
        state = "closed"
    elif "campaign-abandon" in kinds:
        state = "abandoned"
    assigned = next((e.data for e in campaign.entries if e.kind == "seeds-assigned"), {})
    batch = configuration.get("global_batch_size")
    complete = state == "closed" and len(runs) == plan.get("runs")
    return Result(
        source="fourmin",
        path=campaign.path,
        submitter=str(plan.get("submitter", "unknown")),
        system=str(plan.get("system", "unknown")),
        benchmark=str(plan.get("benchmark", "unknown")),
        division=str(plan.get("division", "unknown")),
        chips=_chips(campaign),
        global_batch_size=batch,
        quality_target=None if benchmark is None else benchmark.quality_target,
        runs=tuple(_reported(run, practice) for run in runs),
        minutes=summary["minutes"] if summary and complete else None,
        scaled_minutes=summary["scaled_minutes"] if summary and complete else None,
        ci95=(summary["ci95"][0], summary["ci95"][1])
        if summary and complete and summary["ci95"]
        else None,
        cv=summary["cv"] if summary and complete else None,
        epochs_mean=summary["epochs_mean"] if summary else None,
        images_per_second=summary["images_per_second"] if summary else None,
        state=state,
        practice=practice,
        findings=len(findings),
        valid=not any(finding.fails for finding in findings),
        waivers=tuple(sorted({finding.code for finding in findings if finding.waived})),
        registration=str(assigned.get("registration", "none")),
        group=(
            "fourmin",
            plan.get("ruleset"),
            plan.get("submitter"),
            plan.get("system_digest"),
            plan.get("benchmark"),
            plan.get("division"),
            batch,
        ),
        identity=campaign.digest or campaign.path,
        dataset=_dataset(plan, benchmark),
    )


def _dataset(plan: Mapping[str, Any], benchmark: Benchmark | None) -> str:
    """The benchmark's dataset; where the benchmark does not pin its bytes, with their digest."""
    if benchmark is None:
        return ""
    name = str(benchmark.dataset.get("name", ""))
    if benchmark.dataset.get("train_digest") is not None:
        return name
    used = plan.get("dataset")
    digest = used.get("train_digest") if isinstance(used, dict) else None
    return f"{name} {digest[:12]}" if isinstance(digest, str) else name


def _reported(run: RunView, practice: bool) -> ReportedRun:
    facts = run.facts
    return ReportedRun(
        path=run.path,
        status=str(facts.get("status", "unknown")),
        minutes=counted_minutes(facts, practice) if facts else None,
        epochs=facts.get("epochs"),
        quality=facts.get("quality"),
    )


def _chips(campaign: CampaignView) -> int | None:
    """Accelerators that trained, over all nodes; on the CPU, processor sockets."""
    for run in campaign.runs:
        system = run.facts.get("system")
        configuration = run.configuration
        if not isinstance(system, dict) or configuration is None:
            continue
        if configuration.device == "cuda":
            return configuration.workers
        sockets = system.get("hardware", {}).get("processor", {}).get("sockets")
        return sockets * configuration.nodes if isinstance(sockets, int) else None
    return None
