"""HYP: the configuration is valid, allowed, and what the log says it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fourmin.base.canonical import canonical_bytes, sha256_hex
from fourmin.base.errors import FourminError
from fourmin.ledger.view import CampaignView, RunView
from fourmin.log import keys
from fourmin.log.timeline import Timeline
from fourmin.recipe.algorithms import update_name
from fourmin.recipe.configuration import FIELDS, Configuration
from fourmin.recipe.fields import AUTO
from fourmin.recipe.optimizers import OPTIMIZERS, OptimizerEntry
from fourmin.recipe.settings import parse_settings
from fourmin.results.plan import Plan
from fourmin.rules.compare import same, short
from fourmin.rules.rule import CAMPAIGN, ERROR, RUN, Problem, rule
from fourmin.ruleset import Benchmark

LATER = {
    name: list(field.default) if isinstance(field.default, tuple) else field.default
    for name, field in FIELDS.items()
    if field.later
}
"""What a campaign was run with whose configuration lacks a field, as JSON has it."""


@rule("HYP001", "valid-configuration", ERROR, CAMPAIGN)
def valid_configuration(campaign: CampaignView, plan: Plan) -> Iterator[Problem]:
    """The registered configuration is one that this tool can run, and its digest is its own.

    What it checks
        Every field of `configuration` in campaign.json has a value that the tool accepts;
        configuration_digest is its SHA-256; preset, benchmark and division beside it agree with
        it, and so do the `settings`; the model is one of the benchmark's.
    Why it is bad
        A configuration that cannot have run did not run.
    Example
        A learning rate of -1, which MLPerf's tools accept.
    How to put it right
        Register the campaign with `fourmin run` or `fourmin register`.
    """
    configuration = plan.configuration
    try:
        plan.typed_configuration.check()
    except FourminError as error:
        yield Problem(" ".join(part for part in (error.what, error.why) if part))
    try:
        digest = sha256_hex(canonical_bytes(configuration))
    except ValueError as error:
        digest = str(error)
    if digest != plan.configuration_digest:
        yield Problem("configuration_digest is not the configuration's")
    for name in ("preset", "benchmark", "division"):
        here, there = getattr(plan, name), configuration[name]
        if here != there:
            yield Problem(f"{name} is {short(here)} here, {short(there)} there")
    for message in _settings_not_taken(plan.settings, configuration):
        yield Problem(message)
    benchmark = campaign.benchmark
    if benchmark is not None and configuration["model"] not in benchmark.models:
        yield Problem(f"{short(configuration['model'])} is not a model of {benchmark.name}")


def _settings_not_taken(settings: Sequence[str], configuration: Mapping[str, Any]) -> Iterator[str]:
    """Settings, as given by `--set`, that the configuration does not have."""
    try:
        given = parse_settings(settings)
    except FourminError as error:
        yield error.what
        return
    for name, value in given.items():
        plain = list(value) if isinstance(value, tuple) else value
        # What is left to the machine shows in the configuration as the machine decided.
        taken = configuration.get(name)
        if plain != AUTO and not same(plain, taken):
            yield f"settings say {name}={short(plain)}, it is {short(taken)}"


@rule("HYP002", "closed-division", ERROR, CAMPAIGN)
def closed_division(campaign: CampaignView, plan: Plan, benchmark: Benchmark) -> Iterator[Problem]:
    """A closed configuration stays within the benchmark's limits.

    What it checks
        Every field of the configuration that the benchmark limits, in campaigns of the closed
        division that count; and that no max_steps cuts the runs short.
    Why it is bad
        Where everything may be tuned, the search for settings is what is measured.
    Example
        Momentum 0.5 where the benchmark allows 0.8 to 0.99.
    How to put it right
        Choose values within the limits, or enter the open division, which discloses them.
    """
    if plan.practice:
        return
    if plan.configuration["max_steps"] is not None:
        yield Problem("max_steps cuts the runs short, which only practice may")
    if plan.division == "closed":
        for violation in benchmark.closed_violations({**LATER, **plan.configuration}):
            yield Problem(violation)


@rule("HYP003", "logged-hyperparameters", ERROR, RUN)
def logged_hyperparameters(
    run: RunView, timeline: Timeline, configuration: Configuration, train_samples: int
) -> Iterator[Problem]:
    """MLPerf's hyperparameter keys say what the configuration says.

    What it checks
        Batch, accumulation, batch-norm span, optimizer and all its keys in the log against the
        values that follow from the configuration; none missing, none more, none twice.
    Why it is bad
        A reader who trusts MLPerf's keys would compare a run that did not happen.
    Example
        `lars_opt_base_learning_rate` 12 beside a configuration of 16.
    How to put it right
        Restore events.log from where the run was made.
    """
    config = configuration
    optimizer = OPTIMIZERS.get(config.optimizer)
    parts = config.workers * config.gradient_accumulation_steps
    if optimizer is None or config.global_batch_size <= 0 or parts <= 0:
        return  # valid-configuration tells
    expected = _expected(config, optimizer, train_samples)
    logged = timeline.hyperparameters
    for key in sorted({*expected, *logged}):
        record = timeline.first(key)
        line = None if record is None else record.line
        if key not in logged:
            if run.whole:
                yield Problem(f"{key} is missing")
        elif key not in expected:
            yield Problem(f"{key} does not belong to {config.optimizer}", line)
        elif not same(logged[key], expected[key]):
            yield Problem(
                f"{key} is {short(logged[key])}, by the configuration {short(expected[key])}", line
            )
        if timeline.count(key) > 1:
            yield Problem(f"{key} is logged {timeline.count(key)} times", line)


def _expected(
    config: Configuration, optimizer: OptimizerEntry, train_samples: int
) -> dict[str, Any]:
    """Each hyperparameter key with the value that `config` gives it."""
    steps = config.steps_per_epoch(train_samples)
    # As MLPerf's reference counts them: from the end of the warmup, and one more.
    decay_steps = round(config.decay_epochs * steps) - round(config.warmup_epochs * steps) + 1
    return {
        keys.GLOBAL_BATCH_SIZE: config.global_batch_size,
        keys.GRADIENT_ACCUMULATION_STEPS: config.gradient_accumulation_steps,
        keys.MODEL_BN_SPAN: config.bn_span * config.local_batch_size,
        keys.OPT_NAME: update_name(config),
        **optimizer.values(config, decay_steps),
    }
