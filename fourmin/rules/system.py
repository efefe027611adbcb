"""SYS: one system and one harness for all runs, and what was changed about them is disclosed."""

from __future__ import annotations

from collections.abc import Iterator

from fourmin.base.errors import FourminError
from fourmin.base.values import mapping
from fourmin.ledger.git import repository_around
from fourmin.ledger.source import digest_at
from fourmin.ledger.view import CampaignView, RunView
from fourmin.log import keys
from fourmin.log.records import Record
from fourmin.results.plan import Plan
from fourmin.rules.compare import short
from fourmin.rules.releases import released_versions
from fourmin.rules.rule import CAMPAIGN, ERROR, NOTE, RUN, WARNING, Problem, rule
from fourmin.system.capture import system_digest


@rule("SYS001", "same-system", ERROR, RUN)
def same_system(run: RunView, plan: Plan, system: Record) -> Iterator[Problem]:
    """Every run was made on the system that the plan registered.

    What it checks
        The system digest in the log against campaign.json's. It covers chips, CPU, network and
        the versions that decide speed or numbers; never names of hosts or clocks, nor the main
        memory, which some machines grow.
    Why it is bad
        Five runs on two kinds of nodes are no set of runs of either.
    Example
        Run 5 with another driver.
    How to put it right
        Run a campaign on one system from beginning to end.
    """
    if mapping(system.value).get("digest") != plan.system_digest:
        yield Problem("not the system that campaign.json registers", system.line)


@rule("SYS002", "system-digest", ERROR, RUN)
def system_digest_matches(run: RunView, system: Record) -> Iterator[Problem]:
    """The system digest is that of the system in the log.

    What it checks
        The digest is recomputed from the hardware and versions beside it.
    Why it is bad
        A digest that stays while the hardware changes hides a mixed set of runs.
    Example
        8 GPUs in run 1, 16 in run 2, one digest.
    How to put it right
        Restore events.log from where the run was made.
    """
    value = mapping(system.value)
    try:
        digest = system_digest(value)
    except (AttributeError, KeyError, TypeError, ValueError):
        yield Problem("a system whose digest cannot be recomputed", system.line)
        return
    if digest != value.get("digest"):
        yield Problem("the digest is not that of this system", system.line)


@rule("SYS003", "same-package", ERROR, RUN)
def same_package(run: RunView, plan: Plan, package: Record) -> Iterator[Problem]:
    """Every run was made by the same harness.

    What it checks
        The digest of fourmin's own sources and rules in the log against campaign.json's.
    Why it is bad
        A harness that changes between runs may count otherwise in the next.
    Example
        A line of the evaluation changed after run 2.
    How to put it right
        Install a release, or a commit without local changes, and run another campaign.
    """
    if package.value != plan.package_digest:
        yield Problem("not the package that campaign.json registers", package.line)


@rule("SYS004", "interpreter-changes", WARNING, RUN)
def interpreter_changes(run: RunView) -> Iterator[Problem]:
    """The interpreter was changed from outside.

    What it checks
        PYTHONPATH, PYTHONSTARTUP, PYTHONHOME, LD_PRELOAD, LD_AUDIT, sitecustomize and
        usercustomize, as the run disclosed them.
    Why it is bad
        Any of them can replace a part of the harness without changing its digest.
    Example
        LD_PRELOAD with a library that slows the clock.
    How to put it right
        Run without them. Where a site needs one, say what it is in the system description.
    """
    record = None if run.timeline is None else run.timeline.first(keys.SYSTEM)
    changes = mapping(record.value).get("interpreter_changes") if record else None
    if record is not None and changes:
        names = ", ".join(map(str, changes)) if isinstance(changes, list) else short(changes)
        yield Problem(f"in effect: {names[:200]}", record.line)


@rule("SYS005", "warm-cache", NOTE, CAMPAIGN)
def warm_cache(campaign: CampaignView) -> Iterator[Problem]:
    """The page cache was not emptied before a run.

    What it checks
        The value of cache_clear, which is logged as it really was.
    Why it is bad
        It is not, where it is disclosed: images that lie in memory are read faster than from a
        disk.
    Example
        The second run of a campaign on a dataset that fits into memory.
    How to put it right
        Nothing needs to be done; compare with results that disclose the same.
    """
    warm = [
        (run, record)
        for run in campaign.runs
        if (record := None if run.timeline is None else run.timeline.first(keys.CACHE_CLEAR))
        and record.value is not True
    ]
    if warm:
        run, record = warm[0]
        numbers = ", ".join(str(run.number) for run, _ in warm)
        yield Problem(f"the page cache was warm in run {numbers}", record.line, path=run.log_name)


@rule("SYS006", "unreleased-harness", NOTE, CAMPAIGN)
def unreleased_harness(campaign: CampaignView) -> Iterator[Problem]:
    """The harness is a released version.

    What it checks
        `package_digest` in the campaign.json of a campaign that counts: it is that of a released
        version in rules/releases.toml, or what the tree of `package_commit` gives in the git
        repository that holds the campaign.
    Why it is bad
        Of a harness that everybody can read it is known what it does. Of another one only its
        digest is.
    Example
        A campaign run from a checkout with changes that were never committed.
    How to put it right
        Run a released version, or a checkout of a commit without changes, and check the campaign
        in a repository that has this commit.
    """
    plan = campaign.plan
    if plan is None or plan.practice or plan.package_digest in released_versions():
        return
    why = _why_no_commit(campaign, plan)
    if why:
        yield Problem(
            f"the package {plan.package_digest[:16]} is no released version of fourmin, and {why}"
        )


def _why_no_commit(campaign: CampaignView, plan: Plan) -> str:
    """Why the plan's commit does not show what its package was; empty where it does."""
    commit = plan.package_commit
    if commit is None:
        return "the plan names no commit"
    repository = None if campaign.folder is None else repository_around(campaign.folder)
    if repository is None:
        return f"no git repository is here to find commit {commit} in"
    try:
        found = digest_at(repository, commit)
    except FourminError as error:
        said = ": ".join(filter(None, (error.what, error.why)))
        return f"commit {commit} cannot be looked at: {said}"
    if found == plan.package_digest:
        return ""
    return f"the package of commit {commit} is another one, {found[:16]}"
