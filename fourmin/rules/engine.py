"""Applies the rules to what lies below some paths, and reports what they found."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fourmin.ledger.git import Repository
from fourmin.ledger.registered import Registrations
from fourmin.ledger.submission import PackageView, SubmissionView
from fourmin.ledger.view import CampaignView, Document, RunView
from fourmin.results import tree
from fourmin.results.estimates import is_estimate
from fourmin.results.folder import list_folder, read_bytes, with_unix_line_ends
from fourmin.results.places import Place
from fourmin.rules.changes import ChangeView
from fourmin.rules.foreign.check import check_foreign, collector_paused, load_foreign
from fourmin.rules.registry import RULES
from fourmin.rules.rule import (
    CAMPAIGN,
    CHANGE,
    ERROR,
    PACKAGE,
    RUN,
    SUBMISSION,
    TREE,
    Finding,
    in_order,
)
from fourmin.rules.schema import converted_files, estimate_as_result, line_ends, lone_estimate
from fourmin.rules.verdict import UNKNOWN, Report, Verdict, verdicts
from fourmin.rules.waivers import (
    WAIVERS_FILE,
    Waiver,
    apply_waivers,
    load_waivers,
    parse_waivers,
)
from fourmin.ruleset import CURRENT


def check(
    paths: Sequence[str | Path],
    *,
    base: str | None = None,
    before: str | None = None,
    waivers: Sequence[Waiver] | None = None,
) -> Report:
    """Check every campaign, submission and lone run at `paths` and below them.

    With `base`, a reference in the git repository that holds the paths, also what changed since
    then; with `before`, what a push changed that found the branch there. `waivers` are those of
    this installation, or of the base, unless others are given. Raises FourminError for a path that
    does not exist.
    """
    targets, empty = tree.find_all([os.fspath(path) for path in paths])
    repository = None
    if (reference := base if before is None else before) is not None:
        repository = Repository.open(Path(paths[0]), reference, pushed=before is not None)
    views = _load_all(targets, Registrations(repository))
    findings: list[Finding] = []
    things: list[tuple[str, str]] = []
    packages = {target.path for target in targets if target.kind in tree.PACKAGES}
    packages -= {target.path for target in targets if target.kind == tree.SUBMISSION}
    for target in targets:
        if target.kind not in tree.PACKAGES:
            things.append((UNKNOWN if target.kind == tree.ESTIMATE else target.kind, target.path))
        if target.kind in tree.FOREIGN_KINDS:
            found, runs = _check_foreign(target)
            things += [(tree.MLPERF_RUN, path) for path in runs]
        else:
            found = _check_target(target, views)
        findings += found
    findings += _apply(TREE, list(views.values()), "")
    if repository is not None:
        findings += _check_change(repository, views)
        if waivers is None:  # a change cannot grant itself one
            granted = repository.read(f"rules/{WAIVERS_FILE}") or b""
            waivers = parse_waivers(granted, f"rules/{WAIVERS_FILE} of the base")
    findings = _waived(findings, views.values(), waivers)
    things += [(UNKNOWN, path) for path in empty]
    things += [(tree.SUBMISSION, path) for path in sorted(packages)]
    words = {path: view.registration.word for path, view in views.items()}
    said = verdicts(things, findings, words)
    # Of a folder around submissions there is something to say only where something is wrong.
    said = tuple(verdict for verdict in said if verdict.findings or verdict.path not in packages)
    return Report(CURRENT, said, tuple(findings))


def _check_change(repository: Repository, views: Mapping[str, CampaignView]) -> list[Finding]:
    """What a change since the base may not do; its paths are from the repository's root."""
    known = {repository.relative(path): view for path, view in views.items()}
    campaigns = {path: view for path, view in known.items() if path is not None}
    names = ("campaign.json", "ledger.jsonl")
    repository.fetch(f"{path}/{name}" for path in campaigns for name in names)
    return _apply(CHANGE, ChangeView(repository, campaigns), str(repository.root))


def _check_foreign(target: tree.Target) -> tuple[list[Finding], list[str]]:
    """The findings of another benchmark's result, and the paths of its runs with own files."""
    with collector_paused():
        found = load_foreign(target)
        own_files = target.kind == tree.MLPERF_RUN_SET and not found.unjudged
        runs = [run.path for run in found.runs] if own_files else []
        findings = check_foreign(found, alone=target.kind == tree.MLPERF_RUN)
        del found  # before the collector goes on, so that it finds nothing to look at
    return findings, runs


def check_campaign(folder: Path, path: str | None = None) -> list[Finding]:
    """The findings of one campaign's folder, by path and line.

    `path` is how findings name the folder (as it is given, by default).
    """
    return check_view(load_campaign(folder, path))


def check_campaigns(
    targets: Sequence[tree.Target], registrations: Registrations
) -> list[tuple[CampaignView, Verdict]]:
    """Each campaign among `targets` with a verdict, also from what they say of each other and from
    the descriptions of their systems; waivers applied.
    """
    views = _load_all(targets, registrations)
    described = [target for target in targets if target.kind in (tree.CAMPAIGN, tree.SUBMISSION)]
    findings = [finding for target in described for finding in _check_target(target, views)]
    findings = _waived(findings + _apply(TREE, list(views.values()), ""), views.values())
    judged = verdicts([(target.kind, target.path) for target in described], findings)
    return [
        (views[one.path], replace(one, findings=(*one.findings, *one.elsewhere), elsewhere=()))
        for one in judged
        if one.kind == tree.CAMPAIGN
    ]


def _waived(
    findings: Sequence[Finding],
    campaigns: Iterable[CampaignView],
    waivers: Sequence[Waiver] | None = None,
) -> list[Finding]:
    """The findings with those marked that a waiver covers, of this installation by default."""
    heads = {campaign.path: (campaign.digest, campaign.head) for campaign in campaigns}
    return apply_waivers(findings, heads, load_waivers() if waivers is None else waivers)


def _load_all(
    targets: Sequence[tree.Target], registrations: Registrations
) -> dict[str, CampaignView]:
    """The campaigns among `targets`, by path."""
    views = {
        target.path: load_campaign(target.folder, target.path, target.place)
        for target in targets
        if target.kind == tree.CAMPAIGN
    }
    registrations.attach(views.values())
    return views


def load_campaign(
    folder: Path, path: str | None = None, place: Place | None = None
) -> CampaignView:
    """A campaign by itself, or in its place among submissions."""
    shown = os.fspath(folder) if path is None else path
    return CampaignView.load(folder, shown, list_folder(folder), place)


def check_view(campaign: CampaignView, *, select: Collection[str] | None = None) -> list[Finding]:
    """The findings of a campaign that is loaded already, by path and line."""
    found = _apply(CAMPAIGN, campaign, campaign.path, select)
    for run in campaign.runs:
        of_run = _apply(RUN, run, run.path, select)
        found += of_run if run.whole else _made(of_run)
    plan, failed = campaign.plan, any(finding.severity == ERROR for finding in found)
    required = plan and not plan.practice and campaign.history.close and not failed
    return in_order(found if required else _made(found))


def _made(findings: Iterable[Finding]) -> list[Finding]:
    """Those of checks that were made: nothing is required where an error stands, of a campaign
    that does not count or was not closed, and of a run that was aborted.
    """
    return [finding for finding in findings if not finding.unchecked]


def _apply(
    scope: str, view: Any, path: str, select: Collection[str] | None = None
) -> list[Finding]:
    """What the rules of a scope find in a view."""
    return [
        finding
        for rule in RULES
        if rule.scope == scope and (select is None or rule.code in select)
        for finding in rule.findings(view, path)
    ]


def _check_target(target: tree.Target, views: Mapping[str, CampaignView]) -> list[Finding]:
    if target.kind == tree.CAMPAIGN:
        return check_view(views[target.path])
    if target.kind == tree.RUN:
        return list(_check_run_folder(target))
    if target.kind == tree.ESTIMATE:
        return list(_estimate(target.path))
    prefix = target.path.rstrip("/") + "/"
    below = {
        path.removeprefix(prefix): view for path, view in views.items() if path.startswith(prefix)
    }
    place = target.place or ()
    if target.kind == tree.SUBMISSION:
        submission = SubmissionView.load(target.folder, target.path, place, below)
        return in_order(_apply(SUBMISSION, submission, target.path))
    audits = [one for view in views.values() for one in view.audits]
    package = PackageView.load(target.folder, target.path, target.kind, place, below, audits)
    return in_order(_apply(PACKAGE, package, target.path))


def _check_run_folder(target: tree.Target) -> Iterator[Finding]:
    """A run's folder: within its campaign where it has one, and what concerns it of that."""
    campaign = tree.campaign_of(target.folder)
    if campaign is not None:
        path = os.path.dirname(target.path.rstrip("/")) if os.sep in target.path else ""
        for finding in check_campaign(campaign, path):
            if finding.path == target.path or finding.path.startswith(target.path + "/"):
                yield finding
            elif finding.code == line_ends.code:
                yield replace(finding, path=target.path)
        return
    found = {
        name: data
        for name in ("events.log", "result.json")
        if not isinstance(data := read_bytes(target.folder / name), str)
    }
    files = {name: with_unix_line_ends(data) for name, data in found.items()}
    converted = [name for name, data in files.items() if data is not found[name]]
    if converted:
        yield from line_ends.findings(
            target.path, target.path, lambda where: [converted_files(where, converted)]
        )
    written = files.get("result.json")
    result = None if written is None else Document("result.json", written, "result", CURRENT)
    if result is not None and is_estimate(result.value):
        yield from _estimate(os.path.join(target.path, result.path))
    run = RunView(target.path, events=files.get("events.log", b""), result=result)
    yield from in_order(_made(_apply(RUN, run, run.path)))


def _estimate(path: str) -> Iterator[Finding]:
    """The finding of an estimate where a result should be."""
    return estimate_as_result.findings(path, path, lambda where: [lone_estimate(where)])
