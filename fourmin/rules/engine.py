"""Applies the rules to what lies below some paths, and reports what they found."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.ledger.git import History
from fourmin.ledger.submission import SubmissionView
from fourmin.ledger.view import CampaignView, Document, RunView
from fourmin.results import tree
from fourmin.results.estimates import is_estimate
from fourmin.results.folder import JsonFile, list_folder, read_bytes
from fourmin.rules.changes import ChangeView
from fourmin.rules.foreign.check import check_foreign, collector_paused, load_foreign
from fourmin.rules.registry import RULES
from fourmin.rules.rule import CAMPAIGN, CHANGE, FOURMIN, RUN, SUBMISSION, TREE, WARNING, Finding
from fourmin.rules.schema import estimate_as_result, lone_estimate
from fourmin.rules.waivers import (
    WAIVERS_FILE,
    Waiver,
    apply_waivers,
    load_waivers,
    parse_waivers,
)
from fourmin.ruleset import CURRENT

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Checked:
    """Something that was checked: a path as the caller gave it, its kind, and whether it passed.

    `kind` is run, campaign, submission, mlperf-run, mlperf-run-set, dawnbench-entry or unknown
    (nothing there that is a result). `look_first` is the code of the error that a reviewer
    should look at first, None without one.
    """

    path: str
    kind: str
    ok: bool
    look_first: str | None = None


@dataclass(frozen=True)
class Report:
    """What was checked and what was found; `ok` when no error stands."""

    ruleset: str
    checked: tuple[Checked, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no error that no waiver covers."""
        return not any(finding.fails for finding in self.findings)

    @property
    def clean(self) -> bool:
        """Whether there is neither an error nor a warning."""
        return self.ok and not any(f.severity == WARNING for f in self.findings)

    def to_json(self) -> dict[str, Any]:
        """As `fourmin validate --format json` gives it."""
        return {
            "ruleset": self.ruleset,
            "ok": self.ok,
            "checked": [{"path": c.path, "kind": c.kind, "ok": c.ok} for c in self.checked],
            "findings": [finding.to_json() for finding in self.findings],
            "look_first": [
                {"path": c.path, "code": c.look_first} for c in self.checked if c.look_first
            ],
        }


def check(
    paths: Sequence[str | Path],
    *,
    base: str | None = None,
    waivers: Sequence[Waiver] | None = None,
) -> Report:
    """Check every campaign, submission and lone run at `paths` and below them.

    With `base`, a reference in the git repository that holds the paths, also what changed since
    then. `waivers` are those of this installation, or of the base, unless others are given.
    Raises FourminError for a path that does not exist, and where there is nothing to check.
    """
    targets, unknown = _find([os.fspath(path) for path in paths])
    if not targets:
        raise FourminError(
            f"nothing to check in {', '.join(str(path) for path in paths)}",
            "no campaign, run, submission or result of MLPerf or DAWNBench lies there",
            "name the folder that `fourmin run` wrote, such as results/<campaign>",
        )
    views = {
        target.path: load_campaign(target.folder, target.path)
        for target in targets
        if target.kind == tree.CAMPAIGN
    }
    findings: list[Finding] = []
    known: list[tree.Target] = []
    for target in targets:
        known.append(target)
        if target.kind in tree.FOREIGN_KINDS:
            found, runs = _check_foreign(target)
            known += runs
        else:
            found = _check_target(target, views)
        findings += found
    findings += _apply(TREE, list(views.values()), "")
    if base is not None:
        history = History.open(Path(paths[0]), base)
        findings += _check_change(history, views)
        waivers = waivers_at(history) if waivers is None else waivers
    digests = {path: view.digest for path, view in views.items()}
    findings = apply_waivers(findings, digests, load_waivers() if waivers is None else waivers)
    checked = [
        Checked(
            target.path,
            UNKNOWN if target.kind == tree.ESTIMATE else target.kind,
            not any(f.fails for f in owned),
            look_first(owned),
        )
        for target, owned in _owners(known, findings)
    ]
    checked += [Checked(path, UNKNOWN, True) for path in unknown]
    return Report(CURRENT, tuple(checked), tuple(findings))


def _check_change(history: History, views: Mapping[str, CampaignView]) -> list[Finding]:
    """What a change since the base may not do; its paths are from the repository's root."""
    known = {history.relative(path): view for path, view in views.items()}
    campaigns = {path: view for path, view in known.items() if path is not None}
    return _apply(CHANGE, ChangeView(history, campaigns), str(history.root))


def waivers_at(history: History) -> tuple[Waiver, ...]:
    """The waivers of the base commit: a change cannot grant itself one."""
    data = history.read(f"rules/{WAIVERS_FILE}")
    return () if data is None else parse_waivers(data, f"rules/{WAIVERS_FILE} of the base")


def _find(paths: Iterable[str]) -> tuple[list[tree.Target], list[str]]:
    """Everything to check, each once, and the paths below which there is nothing."""
    targets: list[tree.Target] = []
    unknown: list[str] = []
    seen: set[str] = set()
    for given in paths:
        if not os.path.lexists(given):
            raise FourminError(
                f"no {given}", "the path does not exist", "name a campaign, or a folder of them"
            )
        found = tree.find_targets(given)
        if not found:
            unknown.append(given)
        for target in found:
            if target.identity not in seen:
                seen.add(target.identity)
                targets.append(target)
    return targets, unknown


def _owners(
    targets: Sequence[tree.Target], findings: Sequence[Finding]
) -> Iterator[tuple[tree.Target, list[Finding]]]:
    """Each target with the findings at its path or below, those of the deepest target."""
    by_path: dict[str, list[Finding]] = {target.path: [] for target in targets}
    for finding in findings:
        owner = owner_of(finding.path, by_path)
        if owner is not None:
            by_path[owner].append(finding)
    for target in targets:
        yield target, by_path[target.path]


LOOK_FIRST = ("CLK", "EVA", "CNV", "RUN", "DAT", "HYP", "SEE", "LOG", "PHY", "LED", "SYS")
"""Groups in the order in which an error in them casts doubt on the number itself."""


def look_first(findings: Iterable[Finding]) -> str | None:
    """The code of the error to look at first; None without an error that stands."""
    failing = [finding.code for finding in findings if finding.fails]
    order = {group: index for index, group in enumerate(LOOK_FIRST)}
    return min(failing, key=lambda code: (order.get(code[:3], len(order)), code), default=None)


def _check_foreign(target: tree.Target) -> tuple[list[Finding], list[tree.Target]]:
    """The findings of another benchmark's result, and its runs where they lie in own files."""
    with collector_paused():
        found = load_foreign(target)
        runs = [
            tree.Target(tree.MLPERF_RUN, target.folder, run.path)
            for run in found.runs
            if target.kind == tree.MLPERF_RUN_SET and found.judged
        ]
        findings = check_foreign(found, alone=target.kind == tree.MLPERF_RUN)
        del found  # before the collector goes on, so that it finds nothing to look at
    return findings, runs


def owner_of(path: str, owners: Collection[str]) -> str | None:
    """The longest of `owners` that is `path` or a folder above it; a table's is its description."""
    if path.endswith(".tsv") and f"{path[:-4]}.json" in owners:
        return f"{path[:-4]}.json"
    while path not in owners:
        parent = os.path.dirname(path)
        if parent == path:
            return None
        path = parent
    return path


def by_target(report: Report) -> Iterator[tuple[Checked, list[Finding]]]:
    """Each thing that was checked with its findings, which lie at its path or below.

    Last, what lies elsewhere: files that a change touches beside what was checked.
    """
    owned: dict[str, list[Finding]] = {checked.path: [] for checked in report.checked}
    elsewhere: list[Finding] = []
    for finding in report.findings:
        owner = owner_of(finding.path, owned)
        (elsewhere if owner is None else owned[owner]).append(finding)
    for checked in report.checked:
        yield checked, owned[checked.path]
    if elsewhere:
        ok = not any(finding.fails for finding in elsewhere)
        yield Checked("files of the change", "change", ok, look_first(elsewhere)), elsewhere


def check_campaign(
    folder: Path, path: str | None = None, *, select: Collection[str] | None = None
) -> list[Finding]:
    """The findings of one campaign's folder, by path and line.

    `path` is how findings name the folder (as it is given, by default); `select` limits the
    rules to some codes.
    """
    view = load_campaign(folder, path)
    return check_view(view, select=select)


def check_campaigns(campaigns: Sequence[CampaignView]) -> dict[str, list[Finding]]:
    """The findings of campaigns by path, also what they say of each other; waivers applied."""
    findings = [finding for campaign in campaigns for finding in check_view(campaign)]
    findings += _apply(TREE, list(campaigns), "")
    digests = {campaign.path: campaign.digest for campaign in campaigns}
    owned: dict[str, list[Finding]] = {campaign.path: [] for campaign in campaigns}
    for finding in apply_waivers(findings, digests, load_waivers()):
        owner = owner_of(finding.path, owned)
        if owner is not None:
            owned[owner].append(finding)
    return owned


def load_campaign(folder: Path, path: str | None = None) -> CampaignView:
    """A campaign's folder as the rules see it."""
    shown = os.fspath(folder) if path is None else path
    return CampaignView.load(folder, shown, list_folder(folder))


def check_view(campaign: CampaignView, *, select: Collection[str] | None = None) -> list[Finding]:
    """The findings of a campaign that is loaded already, by path and line."""
    found = _apply(CAMPAIGN, campaign, campaign.path, select)
    for run in campaign.runs:
        found += _apply(RUN, run, run.path, select)
    return sort_findings(found)


def _apply(
    scope: str, view: Any, path: str, select: Collection[str] | None = None
) -> list[Finding]:
    """What the rules of a scope find in a view."""
    source = view.source if isinstance(view, RunView) else FOURMIN
    return [
        finding
        for rule in RULES
        if rule.scope == scope
        and rule.applies_to(source)
        and (select is None or rule.code in select)
        for finding in rule.findings(view, path)
    ]


def check_run(run: RunView) -> list[Finding]:
    """The findings of a run that lies alone, of this project or a foreign one."""
    return sort_findings(_apply(RUN, run, run.path))


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """By path, line and code."""
    return sorted(findings, key=lambda finding: (finding.path, finding.line or 0, finding.code))


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
    submission = SubmissionView.load(target.folder, target.path, below)
    return sort_findings(_apply(SUBMISSION, submission, target.path))


def _check_run_folder(target: tree.Target) -> Iterator[Finding]:
    """A run's folder: within its campaign where it has one, and what concerns it of that."""
    campaign = tree.campaign_of(target.folder)
    if campaign is not None:
        path = os.path.dirname(target.path.rstrip("/")) if os.sep in target.path else ""
        for finding in check_campaign(campaign, path):
            if finding.path == target.path or finding.path.startswith(target.path + "/"):
                yield finding
        return
    files = {
        name: data
        for name in ("events.log", "result.json")
        if not isinstance(data := read_bytes(target.folder / name), str)
    }
    found = files.get("result.json")
    result = None if found is None else JsonFile.parse("result.json", found)
    if result is not None and is_estimate(result.value):
        yield from _estimate(os.path.join(target.path, result.path))
    yield from check_run(
        RunView(
            target.path,
            None,
            events=files.get("events.log", b""),
            result=None if result is None else Document(result, "result", CURRENT),
        )
    )


def _estimate(path: str) -> Iterator[Finding]:
    """The finding of an estimate where a result should be."""
    return estimate_as_result.findings(path, path, lambda where: [lone_estimate(where)])
