"""A run whose layers are shared out, against the synchronous run that it is in all else."""

from __future__ import annotations

from pathlib import Path

import pytest
from algorithm_runs import ONE, assert_alike, ran, report_of, settings, values, verdicts_of_audit
from processes import fourmin

SHORT = [*ONE, "--procs-per-node", "2", "--precision", "fp32", "--max-steps", "44"]


def test_it_comes_to_what_synchronous_training_comes_to(tmp_path: Path) -> None:
    plain = ran(tmp_path / "plain", *SHORT, *settings())
    other = ran(tmp_path / "other", *SHORT, *settings(algorithm="pipeline"))
    # A rank's part of the batch is a micro-batch: the sum is of the same terms, in their order.
    assert_alike(plain, other, "initial_weights_digest", "data_order_digest", "opt_name")
    assert verdicts_of_audit(other) == ["same", "same", "same"]
    assert "cannot be replayed" not in report_of(other)
    traffic = values(other, "communication")[0]
    # 64 images of 16 x 16 x 16 activations of FP32, forth and back.
    assert traffic["bucket_bytes"] == [64 * 4096 * 4 * 2]
    assert traffic["bytes"] == 44 * 64 * 4096 * 4 * 2


@pytest.mark.slow
def test_digits_reaches_its_target(tmp_path: Path) -> None:
    fields = {"global_batch_size": "66", "gradient_accumulation_steps": "2"}
    ran(tmp_path, *ONE, "--procs-per-node", "3", *settings(algorithm="pipeline", **fields))
    assert values(tmp_path, "eval_accuracy")[-1] >= 0.98


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"procs_per_node": "4"}, "a model of 3 stages cannot be shared out among 4 workers"),
        ({"bn_span": "2"}, "algorithm=pipeline is not for bn_span=2"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(
    tmp_path: Path, fields: dict[str, str], said: str
) -> None:
    options = [*ONE, *settings(algorithm="pipeline", **fields), "--results-dir", str(tmp_path)]
    done = fourmin("run", *options, state=tmp_path)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
