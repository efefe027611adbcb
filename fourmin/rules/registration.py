"""LED and CLK: how a campaign was registered and signed, what its plan says of its machine, and how
often its runs were tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from fourmin.base.values import mapping
from fourmin.ledger.signatures import SIGNED, is_signature
from fourmin.ledger.view import CampaignView, RunView
from fourmin.rules.clock import APART_MS
from fourmin.rules.compare import short
from fourmin.rules.rule import CAMPAIGN, ERROR, NOTE, RUN, Problem, rule
from fourmin.ruleset import load_ruleset


@rule("LED012", "registered-before-results", ERROR, CAMPAIGN)
def registered_before_results(campaign: CampaignView) -> Iterator[Problem]:
    """A registered campaign was merged before its runs, and its beacon is the first one after.

    What it checks
        Where the seeds were assigned as `registered`, and the history of the repository around it
        is whole: the base branch has held campaign.json with the same bytes since it first landed,
        and the beacon is the id of the first commit on the branch's first-parent line, later than
        that landing, that changes `rules/beacon` and nothing else, and is no merge. The branch is
        that of `--base` or `--before`, otherwise `origin/HEAD`, or HEAD without one; where that
        branch does not know the plan or its beacon, but another one at hand bears them out, it is
        a claim. So it is without git's history, and outside of the submissions of a repository
        that has beacons: a note says why.
    Why it is bad
        A plan that appears together with its results was written after them; and whoever can
        choose the beacon chooses the seeds. Whoever could take a plan back and bring it again
        would choose among beacons.
    Example
        A registered campaign whose campaign.json comes with its summary.json. One whose beacon is
        the id of the commit that its submitter made.
    How to put it right
        Merge the registration first; run the campaign once the next beacon is there. Fetch the
        base branch, where this clone is not up to date.
    """
    seeds, known = campaign.history.seeds, campaign.registration
    if seeds is None:
        return
    landing = known.landing
    if known.contradiction and landing and landing.stands:
        yield Problem(known.contradiction, seeds.line, path="ledger.jsonl")
    elif known.contradiction:
        yield Problem(known.contradiction)
    elif known.unproved:
        yield Problem(f"not proved: {known.unproved}", hint=known.advice, severity=NOTE)


@rule("CLK009", "seeds-after-landing", ERROR, CAMPAIGN)
def seeds_after_landing(campaign: CampaignView) -> Iterator[Problem]:
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
    seeds = campaign.history.seeds
    landing = campaign.registration.landing
    if seeds and landing and seeds.time_ms < landing.time_ms - APART_MS:
        hours = (landing.time_ms - seeds.time_ms) / 3_600_000
        what = f"{hours:.1f} hours before its plan landed"
        yield Problem(what, seeds.line, path="ledger.jsonl")


@rule("LED020", "attempts-before-a-start", ERROR, CAMPAIGN)
def attempts_before_a_start(campaign: CampaignView) -> Iterator[Problem]:
    """A run is tried only so often until it starts.

    What it checks
        In a campaign that counts, the attempts of each run in the ledger, against the ruleset's
        `most_attempts`.
    Why it is bad
        An attempt before run_start costs no time on the clock, and a scheduler gives it other
        nodes. Whoever may try for ever waits for the best ones. A launcher that is wrong, or a
        node that is down, takes a few attempts; the report shows how many there were.
    Example
        25 attempts of run 1.
    How to put it right
        Find the cause in practice. The campaign is abandoned; another one starts anew.
    """
    if campaign.plan is None or campaign.plan.practice:
        return
    most = load_ruleset(campaign.ruleset).most_attempts
    for run in campaign.history.runs.values():
        if len(run.intents) > most:
            what = f"{len(run.intents)} attempts of run {run.run}; {most} are allowed"
            yield Problem(what, run.intents[most].line, path="ledger.jsonl")


@rule("LED021", "registered-chips", ERROR, RUN)
def registered_chips(run: RunView) -> Iterator[Problem]:
    """The chips that a plan names are those that its runs captured.

    What it checks
        `chip` and `chips` of campaign.json against the hardware and the configuration in each
        log: of a run on GPUs the models of the accelerators and the number of workers, on the
        CPU the processor's model and its sockets, over all nodes.
    Why it is bad
        Campaigns count together by their chips. A plan that names others would take a campaign
        that failed out of its group.
    Example
        `"chips": 8` where 16 workers trained, each on its GPU.
    How to put it right
        Let `fourmin run` write the plan on the machine that trains.
    """
    plan = run.plan
    if plan is None or run.configuration is None or not isinstance(run.facts.system, dict):
        return
    hardware, nodes = run.facts.hardware, run.configuration.nodes
    if run.configuration.device == "cuda":
        kinds = hardware.get("accelerators")
        models = {mapping(kind).get("model") for kind in kinds} if isinstance(kinds, list) else ()
        model: object = ", ".join(sorted(map(str, models)))
        number: object = run.configuration.procs_per_node * nodes
    else:
        processor = mapping(hardware.get("processor"))
        model, sockets = processor.get("model"), processor.get("sockets")
        number = sockets * nodes if isinstance(sockets, int) else None
    if (model, number) != (plan.chip, plan.chips):
        yield Problem(
            f"trained on {short(number)} of {short(model)}, but campaign.json names "
            f"{plan.chips} of {short(plan.chip)}"
        )


@rule("LED025", "signed-by-submitter", ERROR, CAMPAIGN)
def signed_by_submitter(campaign: CampaignView) -> Iterator[Problem]:
    """Where a submitter has keys, their plans and the ends of their ledgers are signed.

    What it checks
        campaign.sig signs the plan and ledger.sig the last line of a closed or abandoned ledger
        (`ssh-keygen -Y verify`, namespace `fourmin`), by a key that the submitter's
        allowed_signers had in the commit before the one that brought the plan or the ledger to
        the base branch; what has not landed, by a key that it has there now. What landed before
        there were keys needs no signature. Without git, its whole history or ssh-keygen nothing is
        proved, which is a note; with `--base`, `validate` ends with 2. A file of that name that
        is no signature is an error everywhere.
    Why it is bad
        Whoever can propose a change could submit, or abandon, in the name of somebody else.
    Example
        A campaign in the folder of a submitter with keys, signed by a key of somebody else.
    How to put it right
        Sign it: `fourmin submit --signing-key FILE`, or `fourmin abandon --signing-key FILE`.
    """
    for name in SIGNED:
        data = campaign.files.get(name)
        if data is not None and not is_signature(data):
            yield Problem("no signature as ssh-keygen writes it", path=name)
    for name, why in campaign.signing.wrong.items():
        yield Problem(why, path=name)
    if campaign.signing.unproved:
        why = f"not proved who signed: {campaign.signing.unproved}"
        yield Problem(why, severity=NOTE)
