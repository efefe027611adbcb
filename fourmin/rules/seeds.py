"""SEE: seeds are assigned, used as assigned, and lead to different runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from fourmin.ledger.chain import Entry
from fourmin.ledger.history import RunHistory
from fourmin.ledger.seeds import planned_seeds
from fourmin.ledger.view import CampaignView, RunView
from fourmin.log import keys
from fourmin.results.plan import Plan
from fourmin.rules.compare import same, short
from fourmin.rules.rule import CAMPAIGN, ERROR, RUN, Problem, rule


@rule("SEE001", "assigned-seeds", ERROR, CAMPAIGN)
def assigned_seeds(campaign: CampaignView, plan: Plan, assignment: Entry) -> Iterator[Problem]:
    """The seeds follow from the beacon and the campaign's digest.

    What it checks
        The seeds in the ledger's seeds-assigned record are recomputed: the first four bytes of
        HKDF-SHA256 with the beacon as key, the campaign's digest and the run's number as info.
        Practice may name its first seed, and then has that one and those after it.
    Why it is bad
        Some seeds reach the target epochs earlier. Who may choose them, wins with them.
    Example
        `"seeds": [1, 2, 3, 4, 7]`.
    How to put it right
        Let `fourmin run` or the merge of the registration assign the seeds.
    """
    try:
        seeds = planned_seeds(plan, str(assignment.data.get("beacon")), campaign.digest)
    except ValueError:
        seeds = []
    told = assignment.data.get("seeds")
    if not same(told, seeds):
        given = f"the beacon and the campaign's digest give {short(seeds)}"
        what = f"the seeds are {short(told)}, {given}"
        yield Problem(what, assignment.line, path="ledger.jsonl")


@rule("SEE002", "seed-as-assigned", ERROR, RUN)
def seed_as_assigned(
    run: RunView, campaign: CampaignView, history: RunHistory
) -> Iterator[Problem]:
    """A run uses the seed that was assigned to it.

    What it checks
        The seed in each of the run's intents and in its log against the ledger's assignment.
    Why it is bad
        An assigned seed that is not used is a chosen one.
    Example
        Run 2's log with the seed of run 1.
    How to put it right
        Restore the ledger and the log from where the run was made.
    """
    seeds = campaign.history.assigned_seeds()
    if run.number is None or run.number > len(seeds):
        return  # ledger-order tells
    seed = seeds[run.number - 1]
    for intent in history.intents:
        told = intent.data.get("seed")
        if not same(told, seed):
            what = f"the intent of run {run.number} has seed {short(told)}, assigned is {seed}"
            yield Problem(what, intent.line, path="ledger.jsonl")
    for record in () if run.timeline is None else run.timeline.all(keys.SEED):
        if not same(record.value, seed):
            yield Problem(f"seed {short(record.value)}, assigned is {seed}", record.line)


def _repeated(campaign: CampaignView, fact: str) -> Iterator[tuple[RunView, list[int | None]]]:
    """Each run whose `fact` an earlier run has too, and those runs."""
    seen: dict[Any, list[int | None]] = defaultdict(list)
    for run in campaign.runs:
        value = getattr(run.facts, fact)
        if isinstance(value, str):
            if seen[value]:
                yield run, list(seen[value])
            seen[value].append(run.number)


@rule("SEE003", "same-initial-weights", ERROR, CAMPAIGN)
def same_initial_weights(campaign: CampaignView) -> Iterator[Problem]:
    """No two runs begin with the same weights.

    What it checks
        initial_weights_digest of all runs of the campaign: different seeds draw different
        weights.
    Why it is bad
        Two runs with the same start are one run, or did not use their seeds.
    Example
        Run 4 has the digest of run 2.
    How to put it right
        Nothing can be put right in the files. Run another campaign.
    """
    for run, others in _repeated(campaign, "initial_weights_digest"):
        yield Problem(f"the initial weights of run {others[0]}", path=run.log_name)


@rule("SEE004", "same-data-order", ERROR, CAMPAIGN)
def same_data_order(campaign: CampaignView) -> Iterator[Problem]:
    """No two runs see the images in the same order.

    What it checks
        data_order_digest of all runs of the campaign: different seeds give different orders.
    Why it is bad
        Two runs in the same order did not use their seeds, or are one run.
    Example
        Every run has the digest of an unshuffled order.
    How to put it right
        Nothing can be put right in the files. Run another campaign.
    """
    for run, others in _repeated(campaign, "data_order_digest"):
        yield Problem(f"the data order of run {others[0]}", path=run.log_name)
