"""Every rule there is, one line each. A code is never used again."""

from __future__ import annotations

from dataclasses import replace

from fourmin.rules import (
    campaigns,
    changes,
    clock,
    convergence,
    data,
    evaluation,
    eventlog,
    hyperparameters,
    ledger,
    package,
    plausibility,
    restarts,
    runs,
    schema,
    seeds,
    system,
)
from fourmin.rules.foreign.table import JUDGES
from fourmin.rules.rule import Rule

_OWN: tuple[Rule, ...] = (
    schema.strict_json,
    schema.schema,
    schema.unexpected_file,
    schema.unsafe_path,
    schema.missing_file,
    schema.unknown_benchmark,
    schema.estimate_as_result,
    eventlog.strict_log,
    eventlog.event_counts,
    eventlog.event_order,
    eventlog.result_from_log,
    eventlog.log_identity,
    eventlog.known_events,
    eventlog.log_types,
    restarts.restart_point,
    clock.time_backwards,
    clock.clocks_agree,
    clock.gap_before_start,
    clock.ledger_and_log_times,
    clock.long_initialization,
    clock.epoch_clock,
    data.benchmark_dataset,
    data.practice_dataset,
    data.same_dataset,
    data.epoch_samples,
    data.order_samples,
    campaigns.dataset_of_the_others,
    evaluation.evaluation_schedule,
    evaluation.evaluation_counts,
    evaluation.stops_at_target,
    hyperparameters.valid_configuration,
    hyperparameters.closed_division,
    hyperparameters.logged_hyperparameters,
    seeds.assigned_seeds,
    seeds.seed_as_assigned,
    seeds.same_initial_weights,
    seeds.same_data_order,
    runs.number_of_runs,
    runs.run_folders,
    runs.same_configuration,
    runs.duplicate_run,
    runs.practice,
    runs.unfinished_campaign,
    runs.abandoned_campaign,
    runs.summary_from_runs,
    runs.run_not_converged,
    runs.run_without_campaign,
    restarts.restarted_run,
    campaigns.run_in_two_campaigns,
    convergence.no_result,
    convergence.faster_than_reference,
    convergence.scaled_by_reference,
    convergence.no_reference_point,
    system.same_system,
    system.system_digest_matches,
    system.same_package,
    system.interpreter_changes,
    system.warm_cache,
    system.unreleased_harness,
    ledger.hash_chain,
    ledger.ledger_order,
    ledger.campaign_digest,
    ledger.recorded_file,
    ledger.unrecorded_file,
    ledger.interrupted_write,
    ledger.ledger_times,
    restarts.recorded_restart,
    campaigns.earlier_campaign_changed,
    campaigns.earlier_campaign_missing,
    campaigns.earlier_campaign_unnamed,
    changes.ledger_only_grows,
    changes.registered_before_results,
    changes.self_registered,
    plausibility.faster_than_peak,
    plausibility.unknown_chip,
    package.system_description,
    package.submission_identity,
    package.practice_submitted,
    package.stray_file,
    package.private_data,
    changes.own_folder_only,
    changes.submissions_stay,
)


def _with_judges(rule: Rule) -> Rule:
    """The rule with the other sources that it judges."""
    foreign = tuple((judge.source, judge.text) for judge in JUDGES if judge.code == rule.code)
    sources = tuple(dict.fromkeys((*rule.sources, *(source for source, _ in foreign))))
    return replace(rule, sources=sources, foreign=foreign)


RULES = tuple(_with_judges(rule) for rule in _OWN)
"""All rules, with what they judge."""
