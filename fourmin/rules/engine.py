"""Applies the rules to what lies below some paths, and reports what they found."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.errors import FourminError
from fourmin.ledger.view import CampaignView, Document, RunView
from fourmin.results import tree
from fourmin.results.folder import JsonFile, list_folder, read_bytes
from fourmin.rules.registry import RULES
from fourmin.rules.rule import CAMPAIGN, ERROR, RUN, WARNING, Finding
from fourmin.ruleset import CURRENT

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Checked:
    """Something that was checked: a path as the caller gave it, its kind, and whether it passed.

    `kind` is run, campaign, submission or unknown (nothing there that this tool knows).
    """

    path: str
    kind: str
    ok: bool


@dataclass(frozen=True)
class Report:
    """What was checked and what was found; `ok` when no finding is an error."""

    ruleset: str
    checked: tuple[Checked, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not any(finding.severity == ERROR for finding in self.findings)

    @property
    def clean(self) -> bool:
        """Whether there is neither an error nor a warning."""
        return not any(finding.severity in (ERROR, WARNING) for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """As `fourmin validate --format json` gives it."""
        return {
            "ruleset": self.ruleset,
            "ok": self.ok,
            "checked": [{"path": c.path, "kind": c.kind, "ok": c.ok} for c in self.checked],
            "findings": [finding.to_json() for finding in self.findings],
        }


def check(paths: Sequence[str | Path]) -> Report:
    """Check every campaign, submission and lone run at `paths` and below them.

    Raises FourminError for a path that does not exist, and where there is nothing to check.
    """
    checked: list[Checked] = []
    findings: list[Finding] = []
    seen: set[Path] = set()
    for given in [os.fspath(path) for path in paths]:
        if not os.path.lexists(given):
            raise FourminError(
                f"no {given}", "the path does not exist", "name a campaign, or a folder of them"
            )
        targets = tree.find_targets(given)
        if not targets:
            checked.append(Checked(given, UNKNOWN, True))
        for target in targets:
            folder = target.folder.resolve()
            if folder in seen:
                continue
            seen.add(folder)
            found = _check_target(target)
            findings.extend(found)
            ok = not any(finding.severity == ERROR for finding in found)
            checked.append(Checked(target.path, target.kind, ok))
    if all(item.kind == UNKNOWN for item in checked):
        raise FourminError(
            f"nothing to check in {', '.join(str(path) for path in paths)}",
            "no campaign, run or submission lies there",
            "name the folder that `fourmin run` wrote, such as results/<campaign>",
        )
    return Report(CURRENT, tuple(checked), tuple(findings))


def check_campaign(
    folder: Path, path: str | None = None, *, select: Collection[str] | None = None
) -> list[Finding]:
    """The findings of one campaign's folder, by path and line.

    `path` is how findings name the folder (as it is given, by default); `select` limits the
    rules to some codes.
    """
    view = load_campaign(folder, path)
    return check_view(view, select=select)


def load_campaign(folder: Path, path: str | None = None) -> CampaignView:
    """A campaign's folder as the rules see it."""
    shown = os.fspath(folder) if path is None else path
    return CampaignView.load(folder, shown, list_folder(folder))


def check_view(campaign: CampaignView, *, select: Collection[str] | None = None) -> list[Finding]:
    """The findings of a campaign that is loaded already, by path and line."""
    found: list[Finding] = []
    for rule in RULES:
        if select is not None and rule.code not in select:
            continue
        if rule.scope == CAMPAIGN:
            found.extend(rule.findings(campaign, campaign.path))
        else:
            for run in campaign.runs:
                if rule.applies_to(run.source):
                    found.extend(rule.findings(run, run.path))
    return sort_findings(found)


def check_run(run: RunView) -> list[Finding]:
    """The findings of a run that lies alone, of this project or a foreign one."""
    found: list[Finding] = []
    for rule in RULES:
        if rule.scope == RUN and rule.applies_to(run.source):
            found.extend(rule.findings(run, run.path))
    return sort_findings(found)


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """By path, line and code."""
    return sorted(findings, key=lambda finding: (finding.path, finding.line or 0, finding.code))


def _check_target(target: tree.Target) -> list[Finding]:
    if target.kind == tree.CAMPAIGN:
        return check_campaign(target.folder, target.path)
    if target.kind == tree.RUN:
        return list(_check_run_folder(target))
    return []


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
    result = files.get("result.json")
    yield from check_run(
        RunView(
            target.path,
            None,
            events=files.get("events.log", b""),
            result=None
            if result is None
            else Document(JsonFile.parse("result.json", result), "result", CURRENT),
        )
    )
