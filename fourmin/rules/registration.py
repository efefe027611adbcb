"""LED: what a campaign's plan says of its machine, and how often its runs were tried."""

from __future__ import annotations

from collections.abc import Iterator

from fourmin.base.values import mapping
from fourmin.ledger.view import CampaignView, RunView
from fourmin.rules.compare import short
from fourmin.rules.rule import CAMPAIGN, ERROR, RUN, Problem, rule
from fourmin.ruleset import load_ruleset


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
            yield Problem(
                campaign.where("ledger.jsonl"),
                f"{len(run.intents)} attempts of run {run.run}; {most} are allowed",
                run.intents[most].line,
            )


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
            run.log_path,
            f"trained on {short(number)} of {short(model)}, but campaign.json names "
            f"{plan.chips} of {short(plan.chip)}",
        )
