"""SUB: a submission is complete, describes its system, and holds nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fourmin.ledger.submission import SYSTEM_FILE, SubmissionView
from fourmin.rules.compare import short
from fourmin.rules.rule import ERROR, SUBMISSION, WARNING, Problem, rule

_PRIVATE = {
    "a home folder": (b"/", rb"/(?:home|Users)/[A-Za-z0-9._-]{1,64}"),
    "an e-mail address": (b"@", rb"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,64}\.[A-Za-z]{2,24}"),
    "an IP address": (
        b".",
        rb"(?<![0-9.])(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}"
        rb"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?![0-9.])",
    ),
}
"""What would identify a host or a user, after a byte that it holds, which long ledgers do not;
every pattern takes time linear in the bytes."""


@rule("SUB001", "system-description", ERROR, SUBMISSION)
def system_description(submission: SubmissionView) -> Iterator[Problem]:
    """The system is described, with all the fields that are asked for.

    What it checks
        system.json is strict JSON and valid by its schema, which has MLPerf's fields.
    Why it is bad
        A time without the system that it was measured on compares with nothing.
    Example
        A description without `accelerators_per_node`.
    How to put it right
        Let `fourmin submit` write system.json and fill in what it asks for.
    """
    path = submission.where(SYSTEM_FILE)
    if submission.system is None:
        yield Problem(path, "the system description cannot be read")
        return
    error = submission.system.file.error
    if error is not None:
        yield Problem(path, error.message, error.line)
    for wrong in submission.system.schema_errors:
        yield Problem(path, str(wrong))


@rule("SUB002", "submission-identity", ERROR, SUBMISSION)
def submission_identity(submission: SubmissionView) -> Iterator[Problem]:
    """A campaign lies with the system, the submitter and the benchmark that it names.

    What it checks
        Submitter, system name and number of nodes in each campaign.json against system.json, the
        accelerators of each run's log against `accelerators_per_node`, and the benchmark against
        the folder that the campaign lies in: `<benchmark>/<campaign>`.
    Why it is bad
        A result under another system's description is a result of neither.
    Example
        A campaign on 16 GPUs below a system of 8.
    How to put it right
        Let `fourmin submit` put the campaign into its place.
    """
    document = submission.system
    system = None if document is None else document.content
    for name, campaign in submission.campaigns.items():
        plan = campaign.plan
        if plan is None:
            continue
        path = campaign.where("campaign.json")
        if name.count("/") != 1 or name.split("/")[0] != plan.benchmark:
            yield Problem(path, f"benchmark {plan.benchmark} in the folder {name}")
        if system is None:
            continue
        pairs: list[tuple[str, Any, Any]] = [
            ("submitter", plan.submitter, system["submitter"]),
            ("system_name", plan.system, system["system_name"]),
            ("number_of_nodes", plan.configuration["nodes"], _count(system["number_of_nodes"])),
        ]
        for run in campaign.runs[:1]:
            counts = _accelerators(run.facts.system)
            if counts is not None:
                described = _count(system["accelerators_per_node"])
                pairs.append(("accelerators_per_node", counts, described))
        for what, here, described in pairs:
            if here != described:
                yield Problem(
                    path, f"{what} is {short(here)}, the description says {short(described)}"
                )


def _count(value: Any) -> int:
    """A number of things, which MLPerf's descriptions also write as text."""
    return int(value)


def _accelerators(system: Any) -> int | None:
    """How many accelerators a node has by the log; None where it does not say."""
    try:
        return sum(int(item["count"]) for item in system["hardware"]["accelerators"])
    except (KeyError, TypeError, ValueError):
        return None


@rule("SUB003", "practice-submitted", ERROR, SUBMISSION)
def practice_submitted(submission: SubmissionView) -> Iterator[Problem]:
    """Practice campaigns are not submitted.

    What it checks
        `practice` in each campaign.json.
    Why it is bad
        Practice has any number of runs on any data: it is no result.
    Example
        `practice-digits-...` below submissions/.
    How to put it right
        Submit a campaign that counts.
    """
    for campaign in submission.campaigns.values():
        if campaign.plan is not None and campaign.plan.practice:
            yield Problem(campaign.where("campaign.json"), "practice in a submission")


@rule("SUB004", "stray-file", ERROR, SUBMISSION)
def stray_file(submission: SubmissionView) -> Iterator[Problem]:
    """A submission holds its system description and campaigns, nothing else.

    What it checks
        The names below the system's folder: plain, no links, and each a campaign's or
        system.json.
    Why it is bad
        What no rule reads, nobody has checked.
    Example
        A file `waivers.toml` in the submission: waivers are the maintainers'.
    How to put it right
        Move the file out of the submission.
    """
    faults = {fault.path: fault.message for fault in submission.contents.faults}
    for name in submission.outside_campaigns():
        if name in faults and name != SYSTEM_FILE:
            yield Problem(submission.where(name), faults[name])
        elif name != SYSTEM_FILE:
            yield Problem(submission.where(name), "a file that does not belong to a submission")


@rule("SUB005", "private-data", WARNING, SUBMISSION)
def private_data(submission: SubmissionView) -> Iterator[Problem]:
    """Nothing in a submission names a user or a host.

    What it checks
        Home folders, e-mail addresses and IP addresses in system.json and in every file of the
        campaigns.
    Why it is bad
        What is published once cannot be taken back.
    Example
        A failure message with the path of the user's home folder.
    How to put it right
        Look whether it may be public. The files cannot be changed after the fact: run another
        campaign where they may not.
    """
    files = {submission.where(SYSTEM_FILE): submission.system_bytes}
    versions: set[bytes] = set()
    for campaign in submission.campaigns.values():
        files |= {campaign.where(name): data for name, data in campaign.files.items()}
        for run in campaign.runs:
            versions |= _versions(run.facts.system)
    for path, data in files.items():
        for what, (held, pattern) in _PRIVATE.items():
            found = re.finditer(pattern, data or b"") if held in (data or b"") else iter(())
            match = next((one for one in found if one.group() not in versions), None)
            if match is not None:
                line = (data or b"").count(b"\n", 0, match.start()) + 1
                yield Problem(path, f"{what}: {match.group()[:60].decode()}", line)


def _versions(system: Any) -> set[bytes]:
    """The captured versions: one of four numbers, as cuDNN's, reads like an address."""
    software = system.get("software") if isinstance(system, dict) else None
    values = software.values() if isinstance(software, dict) else ()
    return {value.encode() for value in values if isinstance(value, str)}
