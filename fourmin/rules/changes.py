"""LED and SUB over a change in a git repository of submissions (`validate --base`, `--before`)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from fourmin.ledger.audits import AUDITORS_FILE, auditors_in
from fourmin.ledger.challenge import audit_name
from fourmin.ledger.git import Repository
from fourmin.ledger.landings import BEACON_FILE
from fourmin.ledger.view import CampaignView
from fourmin.results.names import is_dropping
from fourmin.results.places import AUDITS, SIGNERS_FILE, SUBMISSIONS
from fourmin.rules.rule import CHANGE, ERROR, NOTE, Problem, rule

_FOLDERS = (SUBMISSIONS, AUDITS)
_MAY_CHANGE = ("ledger.jsonl", "system.json", SIGNERS_FILE)


@dataclass(frozen=True)
class ChangeView:
    """A repository, and the campaigns that are checked, by path from its root."""

    repository: Repository
    campaigns: dict[str, CampaignView]


def _owner(path: str) -> str:
    """The folder of the submitter or auditor that a path lies in; empty for a page beside them."""
    names = path.split("/")
    return "/".join(names[:2]) if len(names) > 2 and names[0] in _FOLDERS else ""


@rule("LED011", "ledger-only-grows", ERROR, CHANGE)
def ledger_only_grows(change: ChangeView) -> Iterator[Problem]:
    """A ledger that was committed goes on with the lines that it had.

    What it checks
        Every ledger of the base commit is, byte for byte, the beginning of the present one.
    Why it is bad
        Lines that others have seen are history. Who rewrites them, forgets attempts.
    Example
        The ledger of a campaign that failed, cut back to its opening.
    How to put it right
        Restore the ledger from the base commit.
    """
    for path, campaign in change.campaigns.items():
        before = change.repository.read(f"{path}/ledger.jsonl")
        now = campaign.files.get("ledger.jsonl") or b""
        if before is not None and not now.startswith(before):
            path = campaign.where("ledger.jsonl")
            yield Problem("it does not begin as in the base commit", path=path)


@rule("LED013", "self-registered", NOTE, CHANGE)
def self_registered(change: ChangeView) -> Iterator[Problem]:
    """A new campaign registered itself; nobody saw its plan before its results.

    What it checks
        Campaigns that count, are not in the base commit, and have results.
    Why it is bad
        It is not forbidden, and the report shows it. But campaigns that were thrown away before
        cannot be seen.
    Example
        `fourmin run`, then `fourmin submit`, in one pull request.
    How to put it right
        `fourmin register`, and merge that, before the next campaign.
    """
    for path, campaign in change.campaigns.items():
        alone = campaign.history.self_registered
        counts = campaign.plan is not None and not campaign.plan.practice
        if alone and counts and change.repository.read(f"{path}/campaign.json") is None:
            yield Problem("registered by itself alone", path=campaign.home)


@rule("SUB006", "own-folder-only", ERROR, CHANGE)
def own_folder_only(change: ChangeView) -> Iterator[Problem]:
    """A change by a submitter touches that submitter's folder and nothing else.

    What it checks
        Every path that differs from the base commit, where any of them lies in a submitter's
        folder in `submissions/` or an auditor's in `audits/`: all of them lie in that folder.
    Why it is bad
        A rule, a waiver or another's result that changes together with a submission changes for
        it.
    Example
        A new submission, and a line more in rules/waivers.toml.
    How to put it right
        Take everything else out of the change, and propose it for itself.
    """
    changed = [one.path for one in change.repository.changes]
    paths = [path for path in changed if not is_dropping(path.rpartition("/")[2])]
    owners = sorted({owner for path in paths if (owner := _owner(path))})
    for path in paths if owners else ():
        if [_owner(path)] != owners:
            yield Problem(f"changed together with {' and '.join(owners)}", path=path)


@rule("SUB007", "submissions-stay", ERROR, CHANGE)
def submissions_stay(change: ChangeView) -> Iterator[Problem]:
    """What was submitted is neither changed, nor renamed, nor taken away.

    What it checks
        Files of submitters and auditors in the base commit: none is missing, and of those that
        differ only ledgers (which may grow), system descriptions and allowed_signers.
    Why it is bad
        A campaign that failed belongs to the result as much as the one that did not.
    Example
        The folder of an earlier, slower campaign deleted with the new one's arrival.
    How to put it right
        Restore the files from the base commit.
    """
    for changed in change.repository.changes:
        name = changed.path.rpartition("/")[2]
        if not _owner(changed.path) or changed.status == "A" or is_dropping(name):
            continue
        if changed.status == "D":
            yield Problem("deleted or renamed since the base commit", path=changed.path)
        elif changed.status != "M" or name not in _MAY_CHANGE:
            yield Problem("changed since the base commit", path=changed.path)


@rule("SUB020", "beacon-alone", ERROR, CHANGE)
def beacon_alone(change: ChangeView) -> Iterator[Problem]:
    """A change that touches `rules/beacon`, in any of its commits, does nothing else.

    What it checks
        The paths that differ from the base commit, and the commits since then one by one.
    Why it is bad
        The id of a commit that changes this file decides seeds. Within another change nobody
        sees it, least of all where a later commit takes it back.
    Example
        A corrected word in README.md, by three commits: one of them changes `rules/beacon`, tried
        until the seeds pleased, and the next one restores it.
    How to put it right
        Take those commits out of the change. The file is the maintainers', who change it alone.
    """
    paths = {changed.path for changed in change.repository.changes}
    if paths == {BEACON_FILE}:
        return
    commits = change.repository.commits_touching(BEACON_FILE)
    if BEACON_FILE in paths or commits:
        where = f" by its commit {commits[0][:12]}" if commits else ""
        yield Problem(f"changed{where} in a change that is more than that", path=BEACON_FILE)


@rule("SUB021", "push-goes-on", ERROR, CHANGE)
def push_goes_on(change: ChangeView) -> Iterator[Problem]:
    """A push to the base branch goes on from what the branch held before.

    What it checks
        With `--before`: HEAD descends from the commit that the branch held before the push.
    Why it is bad
        A push that rewrites the branch moves landings and beacons, and can make what others
        have seen never to have been.
    Example
        `git push --force` after a rebase that leaves the plan of a slow campaign out.
    How to put it right
        Push the former commit again. Changes are taken back by commits that come later.
    """
    if change.repository.pushed and change.repository.rewritten:
        yield Problem(f"the push does not go on from {change.repository.branch}", path=".git")


@rule("SUB027", "signers-alone", ERROR, CHANGE)
def signers_alone(change: ChangeView) -> Iterator[Problem]:
    """A change of a submitter's keys, in any of its commits, does nothing else.

    What it checks
        The paths that differ from the base commit, and the commits since then one by one: where
        an allowed_signers is among them, the change is of this file alone.
    Why it is bad
        Whoever merges it says that these keys are the submitter's. Within another change nobody
        sees that.
    Example
        A campaign, and the key that signs it.
    How to put it right
        Propose the keys for themselves, and the rest once they are merged.
    """
    changed = {one.path: posixpath.basename(one.path) for one in change.repository.changes}
    paths = {path: name for path, name in changed.items() if not is_dropping(name)}
    if [*paths.values()] == [SIGNERS_FILE]:
        return
    for path, name in paths.items():
        if name == SIGNERS_FILE:
            yield Problem("changed together with something else", path=path)
    for commit in change.repository.commits_touching(f"**/{SIGNERS_FILE}"):
        yield Problem(
            f"keys changed by the commit {commit[:12]}, among other things", path=SUBMISSIONS
        )


@rule("SUB029", "challenge-lands-first", ERROR, CHANGE)
def challenge_lands_first(change: ChangeView) -> Iterator[Problem]:
    """A change brings a statement only after its challenge, and only of a known auditor.

    What it checks
        Files of auditors that the base commit does not have: `rules/auditors` has a key of the
        auditor there, and the challenge of a statement is there too.
    Why it is bad
        A challenge that comes with its answer may have been chosen by it.
    Example
        One change with both files.
    How to put it right
        Have the challenge merged, then the proof made, then the statement merged.
    """
    known = auditors_in(change.repository.read(f"rules/{AUDITORS_FILE}") or b"")
    for one in change.repository.changes:
        folder, _, name = one.path.partition("/")
        auditor, _, base = name.partition("/")
        if folder != AUDITS or not base or one.status != "A" or is_dropping(base):
            continue
        if auditor not in known:
            yield Problem(
                f"the base commit has no key of {auditor} in rules/auditors", path=one.path
            )
        asked = audit_name(auditor, base.partition(".")[0], statement=False)
        if name != asked and change.repository.read(f"{AUDITS}/{asked}") is None:
            yield Problem("the base commit does not have its challenge", path=one.path)
