"""LED and SUB over a change in a git repository of submissions (`fourmin validate --base`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fourmin.ledger.git import Repository
from fourmin.ledger.landings import BEACON_FILE
from fourmin.ledger.view import CampaignView
from fourmin.results.names import is_dropping
from fourmin.results.places import AUDITS, SUBMISSIONS
from fourmin.rules.clock import APART_MS
from fourmin.rules.rule import CHANGE, ERROR, NOTE, Problem, rule

_FOLDERS = (SUBMISSIONS, AUDITS)
_MAY_CHANGE = ("ledger.jsonl", "system.json", "allowed_signers")


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
            yield Problem(campaign.where("ledger.jsonl"), "it does not begin as in the base commit")


@rule("LED012", "registered-before-results", ERROR, CHANGE)
def registered_before_results(change: ChangeView) -> Iterator[Problem]:
    """A registered campaign was merged before its runs, and its beacon is the first one after.

    What it checks
        Where the seeds were assigned as `registered`: the base branch holds campaign.json with the
        same bytes, and the beacon is the id of the first commit on the branch's first-parent line,
        later than the one that first brought these bytes, that changes `rules/beacon` and nothing
        else, and is no merge.
    Why it is bad
        A plan that appears together with its results was written after them; and whoever can
        choose the beacon chooses the seeds.
    Example
        A registered campaign whose campaign.json comes with its summary.json. One whose beacon is
        the id of the commit that its submitter made.
    How to put it right
        Merge the registration first; run the campaign once the next beacon is there.
    """
    claimed = [
        (campaign, seeds)
        for campaign in change.campaigns.values()
        if (seeds := campaign.history.seeds) and seeds.data.get("registration") == "registered"
    ]
    for campaign, seeds in claimed:
        plan, landing = campaign.where("campaign.json"), campaign.landed
        if landing is None:
            yield Problem(plan, "the base branch never held this plan: it was not registered")
        elif not landing.stands:
            yield Problem(plan, "the base branch took the plan back, which abandons the campaign")
        elif seeds.data.get("beacon") != landing.beacon:
            expected = f"that is {landing.beacon}" if landing.beacon else "there is none yet"
            yield Problem(
                campaign.where("ledger.jsonl"),
                f"not the first beacon after the plan landed in {landing.commit[:12]}; {expected}",
                seeds.line,
            )


@rule("CLK009", "seeds-after-landing", ERROR, CHANGE)
def seeds_after_landing(change: ChangeView) -> Iterator[Problem]:
    """The seeds of a registered campaign are younger than the merge of its plan.

    What it checks
        The time of seeds-assigned against that of the commit that first brought the plan to the
        base branch, with an hour between the clocks of different machines.
    Why it is bad
        The seeds follow from a commit that came after the merge.
    Example
        Seeds a day older than the landing of their plan.
    How to put it right
        Restore ledger.jsonl from where the campaign ran.
    """
    for campaign in change.campaigns.values():
        seeds, landing = campaign.history.seeds, campaign.landed
        claims = seeds is not None and seeds.data.get("registration") == "registered"
        if claims and landing and seeds and seeds.time_ms < landing.time_ms - APART_MS:
            hours = (landing.time_ms - seeds.time_ms) / 3_600_000
            what = f"{hours:.1f} hours before its plan landed"
            yield Problem(campaign.where("ledger.jsonl"), what, seeds.line)


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
        seeds = campaign.history.seeds
        alone = seeds is not None and seeds.data.get("registration") == "self"
        counts = campaign.plan is not None and not campaign.plan.practice
        if alone and counts and change.repository.read(f"{path}/campaign.json") is None:
            yield Problem(campaign.where("campaign.json"), "registered by itself alone")


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
            yield Problem(path, f"changed together with {' and '.join(owners)}")


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
            yield Problem(changed.path, "deleted or renamed since the base commit")
        elif changed.status != "M" or name not in _MAY_CHANGE:
            yield Problem(changed.path, "changed since the base commit")


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
        yield Problem(BEACON_FILE, f"changed{where} in a change that is more than that")
