"""Faults to plant in the package, each with the test that notices it.

Accuracy reveals few of them: a tiny benchmark converges with almost any training code, and a
campaign looks honest with almost any rule left out. `old` stands exactly once in `file`, below
`fourmin/`. Where a change of the package takes `old` away, plant the same fault where it is now.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A fault: `old` becomes `new`, and `test` must fail."""

    name: str
    area: str
    file: str
    old: str
    new: str
    test: str


AREAS = {
    "comm", "optim", "schedule", "step", "precision", "statistics", "data", "evaluation", "session",
    "checkpoint", "ledger", "seeds", "log", "clock", "rules", "results", "ruleset",
}  # fmt: skip

ORACLE = (
    "tests/training/test_step_oracle.py"
    "::test_losses_of_the_first_steps_equal_an_independent_float64_computation"
)
RULE = "tests/rules/test_fixtures.py::test_failing_fixture_is_found"
CLOCKS = "tests/rules/test_clocks.py::test_a_clock_that_runs_faster_than_the_other"
EPOCHS = "tests/training/test_epochs.py::"
OVERFLOW = (
    "tests/precision/test_precision.py"
    "::test_a_step_that_overflowed_leaves_weights_momentum_and_schedule_as_they_were"
)
STEP = "tests/training/test_step.py::test_each_step_is_that_of_the_whole_batch"
HISTORY = "tests/ledger/test_history.py::test_what_cannot_have_happened"
FORMULA = "tests/optim/test_lars.py::test_many_steps_against_the_formula"
GROUPS = "tests/optim/test_optimizer_build.py::test_lars_groups"
RESUMED = "tests/training/test_checkpoint.py::test_training_goes_on_to_the_same_bits"

MUTANTS = tuple(Mutant(*fields) for fields in (
    # How gradients come together.
    ("a-sum-in-place-of-the-mean", "comm", "training/comm/fusion.py",
     "1.0 / math.sqrt(world_size) if halves else 1.0 / world_size",
     "1.0 / math.sqrt(world_size) if halves else 1.0",
     "tests/comm/test_fusion.py::test_mean_is_not_the_sum_nor_the_own_value"),
    ("a-sum-in-a-real-run", "comm", "training/comm/fusion.py",
     "1.0 / math.sqrt(world_size) if halves else 1.0 / world_size",
     "1.0 / math.sqrt(world_size) if halves else 1.0", ORACLE),
    ("no-all-reduce-in-a-real-run", "comm", "training/comm/fusion.py",
     "        all_reduce.all_reduce(flat)", "        pass", ORACLE),
    ("halves-divided-twice", "comm", "training/comm/fusion.py",
     "1.0 / math.sqrt(world_size) if halves", "1.0 / world_size if halves",
     "tests/comm/test_fusion.py::test_mean_of_equal_ranks_is_the_value"),
    ("a-bucket-left-out", "comm", "training/comm/fusion.py",
     "while self._launched < len(self._buckets) and",
     "while self._launched < len(self._buckets) - 1 and",
     "tests/comm/test_fusion.py::test_buckets_are_launched_in_bucket_order"),
    ("a-bucket-sent-before-it-is-full", "comm", "training/comm/fusion.py",
     "and not self._buckets[self._launched].missing:",
     "and self._buckets[self._launched].missing < 2:",
     "tests/comm/test_fusion.py::test_a_bucket_is_sent_when_all_of_it_is_there"),
    ("gradients-of-before", "comm", "training/comm/fusion.py",
     "            bucket.flat.zero_()", "            pass",
     "tests/comm/test_fusion.py::test_zero_clears_in_place"),
    ("a-tail-of-any-size", "comm", "recipe/buckets.py",
     "room -= sizes[last[cut]]", "pass",
     "tests/comm/test_buckets.py::test_the_tail_is_no_larger_than_allowed_as_a_whole"),
    ("identity-in-place-of-all-reduce", "comm", "training/comm/ring.py",
     "require_flat(tensor)", "return",
     "tests/comm/test_all_reduce.py::test_flat_algorithms"),
    # What a step does with them.
    ("no-trust-ratio", "optim", "training/optim/lars.py",
     'if group["adapt"] else group["lr"]', 'if False else group["lr"]', FORMULA),
    ("constant-trust-ratio", "optim", "training/optim/lars.py",
     "torch.where(adapted, ratios, 1.0) * lr",
     "torch.where(adapted, ratios * 0 + 0.01, 1.0) * lr", FORMULA),
    ("dampened-momentum", "optim", "training/optim/lars.py",
     "torch._foreach_add_(velocities, changes)",
     'torch._foreach_add_(velocities, changes, alpha=1 - group["momentum"])', FORMULA),
    ("decay-outside-of-the-trust-ratio", "optim", "training/optim/lars.py",
     '/ (grad_norms + group["weight_decay"] * weight_norms + group["epsilon"])',
     '/ (grad_norms + group["epsilon"])', FORMULA),
    ("uphill", "optim", "training/optim/lars.py",
     "torch._foreach_sub_(weights, velocities)", "torch._foreach_add_(weights, velocities)",
     FORMULA),
    ("lars-on-batch-normalization", "optim", "training/optim/build.py",
     '"adapt": all_alike', '"adapt": True', GROUPS),
    ("weight-decay-on-batch-normalization", "optim", "training/optim/build.py",
     '"weight_decay": decay if all_alike else 0.0', '"weight_decay": decay', GROUPS),
    ("weight-decay-on-biases", "optim", "training/optim/build.py",
     "(plain if parameter is module.bias else adapted).append(parameter)",
     "adapted.append(parameter)", "tests/optim/test_optimizer_build.py::test_split"),
    ("warmup-a-step-early", "schedule", "recipe/schedule.py",
     "fraction = step / self.warmup_steps", "fraction = (step + 1) / self.warmup_steps",
     "tests/optim/test_schedule.py::test_poly_is_mlperfs_reference"),
    ("decay-a-step-short", "schedule", "recipe/schedule.py",
     "- self.warmup_steps + 1", "- self.warmup_steps",
     "tests/optim/test_schedule.py::test_poly_is_mlperfs_reference"),
    ("a-milestone-a-step-late", "schedule", "recipe/schedule.py",
     "if step >= round(milestone", "if step > round(milestone",
     "tests/optim/test_schedule.py::test_step_decay_of_goyal"),
    ("a-late-learning-rate", "step", "training/step.py",
     "self._schedule(self.performed)", "self._schedule(self.performed + 1)", OVERFLOW),
    ("a-late-learning-rate-in-a-real-run", "step", "training/step.py",
     "self._schedule(self.performed)", "self._schedule(self.performed + 1)", ORACLE),
    ("labels-left-sharp", "step", "training/step.py",
     "label_smoothing=self._label_smoothing\n", "label_smoothing=0.0\n", STEP),
    ("gradients-of-the-step-before", "step", "training/step.py",
     "        self._reducer.zero_()\n", "", STEP),
    ("micro-batches-added-up", "step", "training/step.py",
     ") / len(micro_batches)", ")",
     STEP),
    ("a-skipped-step-moves-the-schedule", "step", "training/step.py",
     "            self._optimizer.step()\n            self.performed += 1",
     "            self._optimizer.step()\n        self.performed += 1", OVERFLOW),
    ("an-overflow-is-applied", "precision", "training/step.py",
     "        if finite:", "        if True:", OVERFLOW),
    ("an-overflow-that-stays", "precision", "training/precision.py",
     "        self._overflow.zero_()\n", "",
     "tests/precision/test_precision.py::test_one_bad_element_in_any_buffer_is_found"),
    ("good-steps-survive-an-overflow", "precision", "training/precision.py",
     "self._skipped_steps += 1\n            self._good_steps = 0", "self._skipped_steps += 1",
     "tests/precision/test_precision.py::test_halves_on_overflow_and_doubles_after_good_steps"),
    ("gradients-left-scaled", "precision", "training/precision.py",
     "self._inverse.fill_(1.0 / scale)", "self._inverse.fill_(1.0)",
     "tests/precision/test_precision.py::test_scale_and_unscale_round_nothing"),
    ("biased-running-variance", "statistics", "training/models/batchnorm.py",
     "unbiased = variance * (count / (count - 1)).float()", "unbiased = variance",
     "tests/models/test_batchnorm.py::test_running_statistics_equal_one_process"),
    ("statistics-summed", "statistics", "training/models/batchnorm.py",
     "    flat /= dist.get_world_size()\n", "",
     "tests/models/test_batchnorm.py::test_average_bn_statistics"),
    ("only-means-averaged", "statistics", "training/models/batchnorm.py",
     "for statistic in (module.running_mean, module.running_var)",
     "for statistic in (module.running_mean,)",
     "tests/models/test_batchnorm.py::test_average_bn_statistics"),
    # Which images, in which order.
    ("ranks-given-the-same-shard", "data", "training/data/order.py",
     "start = step * global_batch_size + rank * share", "start = step * global_batch_size",
     "tests/data/test_order.py::test_ranks_get_disjoint_shares_that_make_the_global_batch"),
    ("the-same-shard-in-a-real-run", "data", "training/session.py",
     "        rank=place.rank,\n        world_size", "        rank=0,\n        world_size", ORACLE),
    ("no-reshuffling", "data", "training/data/order.py",
     "np.argsort(_stream(seed, ORDER_STREAM, epoch)", "np.argsort(_stream(seed, ORDER_STREAM, 1)",
     "tests/data/test_order.py::test_each_epoch_is_shuffled_anew"),
    ("crops-from-the-order's-stream", "data", "training/data/order.py",
     "AUGMENTATION_STREAM = 2", "AUGMENTATION_STREAM = 1",
     "tests/data/test_order.py::test_crops_and_order_come_from_streams_of_their_own"),
    ("a-digest-that-ignores-the-order", "data", "training/data/order.py",
     'data = np.ascontiguousarray(indices, dtype="<i8").tobytes()',
     'data = np.sort(np.ascontiguousarray(indices, dtype="<i8")).tobytes()',
     "tests/data/test_order.py::test_digest_is_frozen"),
    ("a-digest-of-rank-0-s-share-first", "data", "training/data/order.py",
     "for one in shares], axis=1).ravel()", "for one in shares], axis=0).ravel()",
     "tests/data/test_order.py::test_digest_is_the_same_for_1_2_and_4_workers"),
    ("a-short-batch-at-the-end", "data", "training/data/order.py",
     "    return n // global_batch_size\n", "    return -(-n // global_batch_size)\n",
     "tests/data/test_order.py::test_digest_of_epochs_concatenates_and_stops_at_max_steps"),
    ("labels-off-by-one", "data", "training/data/loader.py",
     'labels, widths, heights = (column[indices] for column in self._arrays["train"])',
     'labels, widths, heights = (column[indices] for column in self._arrays["train"])'
     "; labels = (labels + 1) % 10",
     "tests/data/test_loaders.py::test_labels_are_the_class_folder_of_the_index"),
    # How a model is judged.
    ("evaluation-over-a-padded-set", "evaluation", "training/evaluate.py",
     "if counted != expected:", "if counted < expected:",
     "tests/training/test_evaluate.py"
     "::test_a_padded_set_is_refused_and_never_divides_the_accuracy"),
    ("evaluation-divided-by-a-padded-count", "evaluation", "training/evaluate.py",
     "totals[1] += batch.labels.numel()", "totals[1] += -(-batch.labels.numel() // 8) * 8",
     "tests/training/test_evaluate.py::test_every_image_counts_once_with_a_smaller_last_batch"),
    ("evaluation-in-training-mode", "evaluation", "training/evaluate.py",
     "    model.eval()\n", "", "tests/training/test_evaluate.py"
     "::test_batch_statistics_are_not_touched_and_training_goes_on_afterwards"),
    ("images-evaluated-twice", "evaluation", "training/data/order.py",
     "np.arange(n * rank // world_size, n * (rank + 1) // world_size",
     "np.arange(n * rank // world_size, min(n, n * (rank + 1) // world_size + 1)",
     "tests/data/test_order.py::test_evaluation_shares_hold_every_image_once"),
    ("statistics-of-each-rank-alone", "evaluation", "training/epochs.py",
     "        average_bn_statistics(run.model)\n", "",
     EPOCHS + "test_it_ends_with_the_evaluation_that_reaches_the_target"),
    ("evaluations-an-epoch-late", "ruleset", "ruleset.py",
     "epoch % self.eval_every == offset % self.eval_every",
     "(epoch + 1) % self.eval_every == offset % self.eval_every",
     RULE + "[EVA001-an-evaluation-that-is-not-scheduled]"),
    # The life of a run.
    ("data-opened-before-the-clock", "session", "training/session.py",
     "        started_ns = _go_on(run) if job.restart else _start(run, control)\n"
     "        epochs = Epochs(run, _open_data(run))",
     "        loader = _open_data(run)\n"
     "        started_ns = _go_on(run) if job.restart else _start(run, control)\n"
     "        epochs = Epochs(run, loader)",
     EPOCHS + "test_the_data_is_touched_only_when_the_clock_runs"),
    ("a-start-without-the-others", "session", "training/session.py",
     "        control.ask_to_start()\n    barrier(run.place)\n",
     "        control.ask_to_start()\n",
     EPOCHS + "test_the_data_is_touched_only_when_the_clock_runs"),
    ("the-same-dropout-on-every-rank", "session", "training/epochs.py",
     "(run.job.seed << 16) + run.place.rank)", "(run.job.seed << 16))",
     EPOCHS + "test_every_rank_draws_its_own_random_numbers_anew_in_each_epoch"),
    ("a-checkpoint-of-before-the-evaluation", "checkpoint", "training/epochs.py",
     "            if evaluated and self._evaluate(epoch) >= run.benchmark.quality_target:",
     "            if evaluated:\n"
     "                run.checkpoints.save(epoch, self._state)\n"
     "            if evaluated and self._evaluate(epoch) >= run.benchmark.quality_target:",
     EPOCHS + "test_it_ends_with_its_schedule"),
    ("a-checkpoint-named-before-its-log-is-safe", "checkpoint", "training/checkpoint.py",
     "            self._before_it_counts()\n            sync_folder(unnamed)",
     "            sync_folder(unnamed)",
     "tests/training/test_checkpoint.py"
     "::test_a_checkpoint_has_its_name_only_when_all_that_it_needs_is_written"),
    ("a-restart-a-step-ahead", "checkpoint", "training/step.py",
     'self.performed = int(state["performed"])', 'self.performed = int(state["performed"]) + 1',
     RESUMED),
    ("an-order-that-may-be-another-seed-s", "checkpoint", "training/data/order.py",
     "if self.parts[-1] != part:", "if False:",
     "tests/training/test_checkpoint.py::test_the_digest_of_the_order_goes_on"),
    # What the ledger vouches for.
    ("lines-that-name-no-line-before", "ledger", "ledger/chain.py",
     'if record["previous"] != previous:', "if False:",
     "tests/ledger/test_chain.py::test_a_line_written_anew_with_its_own_hash_shows_in_the_next"),
    ("lines-that-count-as-they-like", "ledger", "ledger/chain.py",
     'if record["index"] != number - 1:', "if False:",
     "tests/ledger/test_chain.py::test_a_line_that_counts_wrong"),
    ("a-hash-over-what-was-parsed", "ledger", "ledger/chain.py",
     "        previous = sha256_hex(raw)",
     "        previous = sha256_hex(raw.replace(b' ', b''))",
     "tests/ledger/test_chain.py::test_the_chain_goes_over_raw_bytes"),
    ("records-that-need-not-be-canonical", "ledger", "ledger/chain.py",
     "if canonical_bytes(record) != raw:", "if False:",
     "tests/ledger/test_chain.py::test_the_chain_goes_over_raw_bytes"),
    ("a-record-that-a-power-cut-takes", "ledger", "base/files.py",
     "str(path))\n        os.fsync(descriptor)\n    finally",
     "str(path))\n    finally",
     "tests/canonical/test_text_and_files.py::test_a_line_is_on_the_disk_when_append_returns"),
    ("a-name-before-its-bytes", "ledger", "base/files.py",
     "        file.flush()\n        os.fsync(file.fileno())\n    os.replace",
     "        pass\n    os.replace",
     "tests/canonical/test_text_and_files.py::test_a_file_is_on_the_disk_before_it_gets_its_name"),
    ("a-result-shown-before-it-is-recorded", "ledger", "ledger/campaign.py",
     "        write_durably(folder / (RESULT_FILE + PENDING), data)\n",
     "        write_durably(folder / RESULT_FILE, data)\n"
     "        write_durably(folder / (RESULT_FILE + PENDING), data)\n",
     "tests/ledger/test_campaign.py"
     "::test_what_the_ledger_vouches_for_is_written_then_recorded_then_named"),
    ("a-second-outcome", "ledger", "ledger/history.py",
     "        if known.result is not None:", "        if False:",
     HISTORY),
    ("runs-in-any-order", "ledger", "ledger/history.py",
     "if run > 1 and (before is None or before.result is None):", "if False:", HISTORY),
    ("a-close-with-runs-left-out", "ledger", "ledger/history.py",
     "if open_runs or not self.runs:", "if not self.runs:", HISTORY),
    ("seeds-of-any-campaign", "seeds", "ledger/seeds.py",
     'digest + run.to_bytes(4, "big")', 'run.to_bytes(4, "big")',
     "tests/ledger/test_seeds.py::test_beacon_and_digest_and_run_all_matter"),
    ("seeds-without-a-beacon", "seeds", "ledger/seeds.py",
     "stream = hkdf_sha256(key, SALT", 'stream = hkdf_sha256(b"", SALT',
     "tests/ledger/test_seeds.py::test_beacon_and_digest_and_run_all_matter"),
    ("chosen-seeds-that-count", "seeds", "ledger/seeds.py",
     'if plan.practice and first is not None', "if first is not None",
     "tests/ledger/test_seeds.py::test_only_practice_may_name_its_first_seed"),
    # What the log says and how it is read.
    ("a-monotonic-clock-that-can-be-set", "log", "log/writer.py",
     "monotonic: Callable[[], int] = time.monotonic_ns",
     "monotonic: Callable[[], int] = time.time_ns",
     "tests/log/test_writer.py::test_the_clocks_are_the_wall_and_one_that_nobody_sets"),
    ("a-sync-that-syncs-nothing", "log", "log/writer.py",
     "        os.fsync(self._descriptor)", "        pass",
     "tests/log/test_writer.py::test_a_log_is_on_the_disk_when_it_says_so"),
    ("the-clock-starts-at-the-last-start", "clock", "log/timeline.py",
     "return time_of(self.first(keys.RUN_START))", "return time_of(self.last(keys.RUN_START))",
     "tests/log/test_timeline.py::test_times_and_repeats_stay_visible"),
    ("the-target-must-be-passed", "clock", "log/timeline.py",
     "and evaluation.accuracy >= target", "and evaluation.accuracy > target",
     "tests/log/test_timeline.py::test_first_reaching"),
    ("epochs-counted-that-were-trained-again", "clock", "log/restarts.py",
     "_epoch(record) > limit:", "_epoch(record) > limit + 1:",
     "tests/rules/test_restarts.py::test_what_was_trained_again_counts_once_and_its_time_counts"),
    # The rules.
    ("a-wall-clock-that-may-be-set-back", "clock", "rules/clock.py",
     "if abs(wall - monotonic) > DRIFT_MS", "if wall - monotonic > DRIFT_MS", CLOCKS),
    ("clocks-compared-with-their-neighbours", "clock", "rules/clock.py",
     "bounds[key] = first, sample", "bounds[key] = sample, sample", CLOCKS),
    ("a-log-of-before-its-intent", "clock", "rules/clock.py",
     "if times[0] < intent.time_ms - skew:", "if False:",
     RULE + "[CLK004-the-log-begins-before-its-intent]"),
    ("an-accuracy-near-its-count", "rules", "rules/evaluation.py",
     "elif value is not None and value != correct / samples:",
     "elif value is not None and abs(value - correct / samples) > 1:",
     RULE + "[EVA002-an-accuracy-that-was-not-counted]"),
    ("training-past-the-target", "rules", "rules/evaluation.py",
     "for record in later[:1]:", "for record in later[:0]:",
     RULE + "[EVA003-training-past-the-target]"),
    ("short-epochs", "rules", "rules/data.py",
     "if not same(record.metadata.get(keys.SAMPLES_COUNT), expected):",
     "if (number(record.metadata.get(keys.SAMPLES_COUNT)) or 0) > expected:",
     RULE + "[DAT004-a-short-epoch]"),
    ("a-seed-of-another-run", "rules", "rules/seeds.py",
     "if not same(record.value, seed):", "if False:",
     RULE + "[SEE002-another-seed-in-the-log]"),
    ("a-waiver-for-every-campaign", "rules", "rules/waivers.py",
     "granted.get((finding.code, campaigns[owner]))",
     "next((w for w in waivers if w.code == finding.code), None)",
     "tests/rules/test_waivers.py::test_another_code_or_campaign_is_not_covered"),
    ("a-waiver-for-names-that-begin-alike", "rules", "rules/verdict.py",
     "    while path not in owners:\n",
     "    path = next((o for o in owners if path.startswith(o)), path)\n"
     "    while path not in owners:\n",
     "tests/rules/test_waivers.py::test_a_campaign_whose_name_begins_alike_is_another"),
    # What the runs give.
    ("only-the-slowest-dropped", "results", "results/scoring.py",
     "order[1:-1]", "order[:-1]",
     "tests/results/test_scoring.py::test_the_fastest_and_the_slowest_are_dropped"),
    ("a-one-sided-interval", "results", "results/statistics.py",
     "0.5 + confidence / 2", "confidence",
     "tests/results/test_scoring.py::test_spread_by_hand"),
    ("a-two-sided-reference", "results", "results/rcp.py",
     "student_t_quantile(design.confidence,",
     "student_t_quantile(0.5 + design.confidence / 2,",
     "tests/results/test_rcp.py::test_the_published_table"),
    ("a-score-scaled-the-wrong-way", "results", "results/rcp.py",
     "max(1.0, point.mean / epochs)", "max(1.0, epochs / point.mean)",
     "tests/results/test_rcp.py::test_published_scaling_factors"),
    ("epochs-of-runs-that-failed", "results", "results/run_result.py",
     "if self.status == CONVERGED else None", "if True else None",
     "tests/results/test_rcp.py::test_epochs_without_the_target_do_not_count"),
    ("the-best-accuracy-in-place-of-the-last", "results", "results/run_result.py",
     "quality=None if last is None else last.accuracy",
     "quality=max((e.accuracy for e in timeline.evaluations), default=None)",
     "tests/results/test_run_result.py::test_times_counts_and_the_last_evaluation"),
    ("an-abort-that-converged", "results", "results/run_result.py",
     "if timeline.count(keys.ABORT) or not", "if not",
     "tests/results/test_run_result.py"
     "::test_only_what_ended_of_itself_has_converged_or_not"),
))  # fmt: skip
