"""SUB: submissions hold what belongs there, each campaign in its place, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fourmin.ledger.file_kinds import file_kind
from fourmin.ledger.signatures import read_signers
from fourmin.ledger.submission import PackageView, SubmissionView
from fourmin.ledger.view import CampaignView
from fourmin.results.places import SYSTEM_FILE
from fourmin.rules.rule import CAMPAIGN, ERROR, PACKAGE, SUBMISSION, WARNING, Problem, rule

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
    for below, campaign in submission.campaigns.items():
        if campaign.plan is not None and campaign.plan.practice:
            yield Problem("practice in a submission", path=f"{below}/campaign.json")


@rule("SUB004", "stray-file", ERROR, PACKAGE)
def stray_file(package: PackageView) -> Iterator[Problem]:
    """Submissions hold descriptions of systems and campaigns, nothing else.

    What it checks
        Every name below a folder `submissions`, or a copy of one. It holds README.md and
        `<submitter>/<system>/<benchmark>/<campaign>`; a submitter's folder may hold
        allowed_signers, and a system's folder system.json. In `audits` beside it lie
        `<auditor>/<digest>.json` and `<digest>.challenge.json`. Names are plain ASCII, not hidden,
        none that Windows reserves, no two alike but for case; there are no links, and nothing is
        larger than it needs to be. Small files that a desktop leaves are one warning.
    Why it is bad
        What no rule reads, nobody has checked: a page beside a result says what it likes.
    Example
        A file `waivers.toml` in the submission: waivers are the maintainers'. A tree of MLPerf's.
    How to put it right
        Move the file out of the submissions.
    """
    for name, why in package.misfits:
        yield Problem(why, path=name)
    if package.droppings:
        first, more = package.droppings[0], len(package.droppings) - 1
        yield Problem(_left_by_a_desktop(more), path=first, severity=WARNING)


def _left_by_a_desktop(more: int) -> str:
    others = f", and {more} more" if more else ""
    return f"a file that a desktop or a network file system left{others}"


@rule("SUB008", "own-place", ERROR, CAMPAIGN)
def own_place(campaign: CampaignView) -> Iterator[Problem]:
    """Among submissions a campaign lies in the place that its plan names.

    What it checks
        The folders from `submissions`, or a copy of it, to the campaign's against submitter,
        system, benchmark and name in campaign.json. Elsewhere a campaign may be moved and renamed.
    Why it is bad
        A plan has one place. A copy of it in another would hide the campaign, or be somebody
        else's.
    Example
        A rival's campaign below one's own name.
    How to put it right
        Let `fourmin submit` put the campaign into its place.
    """
    planned = campaign.planned_place
    if planned and not campaign.at_home:
        here = "/".join(name or "*" for name in campaign.place or ())
        yield Problem(f"its place is {'/'.join(map(str, planned))}, not {here}")


@rule("SUB009", "desktop-files", WARNING, CAMPAIGN)
def desktop_files(campaign: CampaignView) -> Iterator[Problem]:
    """A desktop or a network file system left files in a campaign's folder.

    What it checks
        Small files such as .DS_Store, Thumbs.db, desktop.ini, `._*` and `.nfs*`.
    Why it is bad
        It is not: nobody reads them. But they belong to no result, and are not published.
    Example
        A `.DS_Store` in run-3, after the folder was looked at on a Mac.
    How to put it right
        Delete them.
    """
    found = sorted(name for name in campaign.files if file_kind(name) == "dropping")
    if found:
        yield Problem(_left_by_a_desktop(len(found) - 1), path=found[0])


@rule("SUB010", "work-in-progress", ERROR, SUBMISSION)
def work_in_progress(submission: SubmissionView) -> Iterator[Problem]:
    """Nothing that belongs to a run under way lies among submissions.

    What it checks
        Lock files, pending and temporary files, traces of `run --profile`, and a last ledger line
        without its line end, in the campaigns of a submission.
    Why it is bad
        No record vouches for them: whatever they hold is nobody's result.
    Example
        A file `.lock` with 20 MB in it.
    How to put it right
        `fourmin run --resume CAMPAIGN` or `fourmin abandon CAMPAIGN` mends it.
    """
    for below, campaign in submission.campaigns.items():
        for name in campaign.files:
            kind = file_kind(name)
            if kind in ("lock", "pending", "temporary", "trace"):
                yield Problem(f"a {kind} file among submissions", path=f"{below}/{name}")
        if campaign.torn_line is not None:
            ledger = f"{below}/ledger.jsonl"
            yield Problem("the last line has no line end", campaign.torn_line, path=ledger)


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
    files = {SYSTEM_FILE: submission.system_bytes}
    versions: set[bytes] = set()
    for below, campaign in submission.campaigns.items():
        files |= {f"{below}/{name}": data for name, data in campaign.files.items()}
        for run in campaign.runs:
            versions |= _versions(run.facts.system)
    for path, data in files.items():
        for what, (held, pattern) in _PRIVATE.items():
            found = re.finditer(pattern, data or b"") if held in (data or b"") else iter(())
            match = next((one for one in found if one.group() not in versions), None)
            if match is not None:
                line = (data or b"").count(b"\n", 0, match.start()) + 1
                yield Problem(f"{what}: {match.group()[:60].decode()}", line, path=path)


def _versions(system: Any) -> set[bytes]:
    """The captured versions: one of four numbers, as cuDNN's, reads like an address."""
    software = system.get("software") if isinstance(system, dict) else None
    values = software.values() if isinstance(software, dict) else ()
    return {value.encode() for value in values if isinstance(value, str)}


@rule("SUB026", "plain-signers", ERROR, PACKAGE)
def plain_signers(package: PackageView) -> Iterator[Problem]:
    """A file of signers holds plain keys of its submitter, for this purpose alone.

    What it checks
        Each line of `<submitter>/allowed_signers` is empty, a comment after `#`, or
        `<submitter> namespaces="fourmin" <kind> <key>` with a comment after it or none: the name of
        the folder, this option and no other, an Ed25519, ECDSA or RSA key (of 3072 bits at least)
        or one of a token (`sk-`). There is at least one key.
    Why it is bad
        A pattern, a certificate authority or a key for every purpose lets others sign.
    Example
        `* cert-authority ssh-ed25519 AAAA...`
    How to put it right
        Write one line a key: the folder's name, `namespaces="fourmin"`, and what the key's .pub
        file holds.
    """
    for name, submitter, data in package.signers:
        if isinstance(data, str):
            yield Problem(f"the file is {data}", path=name)
            continue
        for line, why in read_signers(data, submitter)[1]:
            yield Problem(why, line, path=name)


@rule("SUB028", "auditors-word", ERROR, PACKAGE)
def auditors_word(package: PackageView) -> Iterator[Problem]:
    """A challenge or statement is its auditor's, and of the campaign and ledger that it names.

    What it checks
        Each file of an auditor in `audits`: its form, that it names the folder's auditor, who is
        not the submitter, and the plan and closed ledger of a campaign beside it; that its segments
        are those which plan, ledger and nonce give, and a nonce from the base branch is the first
        beacon after the ledger landed; that a statement answers a challenge of the same auditor;
        and its signature (`ssh-keygen -Y`, namespace `fourmin`, of all but itself as canonical
        JSON) by a key that `rules/auditors` gives the auditor. An auditor without a key there, or
        no ssh-keygen to ask, is a warning: the audit stays claimed.
    Why it is bad
        Whoever may write a statement for himself, has audited nothing.
    Example
        A statement about another campaign, copied and given a new name.
    How to put it right
        Let the auditor make it again: `fourmin audit CAMPAIGN --proof FILE`.
    """
    for one in package.audits:
        if one.wrong:
            yield Problem(one.wrong, path=one.name)
        elif one.unproved:
            yield Problem(one.unproved, path=one.name, severity=WARNING)
