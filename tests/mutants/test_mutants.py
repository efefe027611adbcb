"""Faults that accuracy does not reveal, each planted in a copy of the package and killed by name.

A tiny benchmark converges with almost any training code, so these tests ask of the tests what
they ask of the code: each mutant must make the test beside it fail, and the untouched copy must
pass them all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ORACLE = (
    "tests/training/test_step_oracle.py"
    "::test_losses_of_the_first_steps_equal_an_independent_float64_computation"
)

MUTANTS = {
    "no-trust-ratio": (
        "training/optim/lars.py",
        'if group["adapt"] else group["lr"]',
        'if False else group["lr"]',
        "tests/optim/test_lars.py::test_many_steps_against_the_formula",
    ),
    "constant-trust-ratio": (
        "training/optim/lars.py",
        "torch.where(adapted, ratios, 1.0) * lr",
        "torch.where(adapted, ratios * 0 + 0.01, 1.0) * lr",
        "tests/optim/test_lars.py::test_many_steps_against_the_formula",
    ),
    "sum-instead-of-mean": (
        "training/comm/fusion.py",
        "flat.mul_(1.0 / world_size)",
        "flat.mul_(1.0)",
        "tests/comm/test_fusion.py::test_mean_is_not_the_sum_nor_the_own_value",
    ),
    "identity-instead-of-all-reduce": (
        "training/comm/ring.py",
        "require_flat(tensor)",
        "return",
        "tests/comm/test_all_reduce.py::test_flat_algorithms",
    ),
    "ranks-given-the-same-shard": (
        "training/data/order.py",
        "start = step * global_batch_size + rank * share",
        "start = step * global_batch_size",
        "tests/data/test_order.py::test_ranks_get_disjoint_shares_that_make_the_global_batch",
    ),
    "no-reshuffling": (
        "training/data/order.py",
        "np.argsort(_stream(seed, ORDER_STREAM, epoch)",
        "np.argsort(_stream(seed, ORDER_STREAM, 1)",
        "tests/data/test_order.py::test_each_epoch_is_shuffled_anew",
    ),
    "lars-on-batch-normalization": (
        "training/optim/build.py",
        '"adapt": all_alike',
        '"adapt": True',
        "tests/optim/test_optimizer_build.py::test_lars_groups",
    ),
    "weight-decay-on-batch-normalization": (
        "training/optim/build.py",
        '"weight_decay": decay if all_alike else 0.0',
        '"weight_decay": decay',
        "tests/optim/test_optimizer_build.py::test_lars_groups",
    ),
    "evaluation-over-a-padded-set": (
        "training/evaluate.py",
        "if counted != expected:",
        "if counted < expected:",
        "tests/training/test_evaluate.py"
        "::test_a_padded_set_is_refused_and_never_divides_the_accuracy",
    ),
    "evaluation-divided-by-a-padded-count": (
        "training/evaluate.py",
        "totals[1] += batch.labels.numel()",
        "totals[1] += -(-batch.labels.numel() // 8) * 8",
        "tests/training/test_evaluate.py::test_every_image_counts_once_with_a_smaller_last_batch",
    ),
    "labels-off-by-one": (
        "training/data/loader.py",
        'labels, widths, heights = (column[indices] for column in self._arrays["train"])',
        'labels, widths, heights = (column[indices] for column in self._arrays["train"])'
        "; labels = (labels + 1) % 10",
        "tests/data/test_loaders.py::test_labels_are_the_class_folder_of_the_index",
    ),
    "the-same-shard-in-a-real-run": (
        "training/session.py",
        "rank=self._place.rank,\n            world_size",
        "rank=0,\n            world_size",
        ORACLE,
    ),
    "no-all-reduce-in-a-real-run": (
        "training/comm/fusion.py",
        "all_reduce.all_reduce(flat)",
        "pass",
        ORACLE,
    ),
    "a-sum-in-a-real-run": (
        "training/comm/fusion.py",
        "flat.mul_(1.0 / world_size)",
        "flat.mul_(1.0)",
        ORACLE,
    ),
    "a-late-learning-rate": (
        "training/step.py",
        "self._schedule(self.performed)",
        "self._schedule(self.performed + 1)",
        ORACLE,
    ),
}

# Each is run in a process of its own, with the mutated package first on the path.
pytestmark = pytest.mark.slow


def run_test(package_parent: Path, test: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(ROOT / test)],
        cwd=package_parent,
        env={**os.environ, "PYTHONPATH": str(package_parent), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(
        ROOT / "fourmin", tmp_path / "fourmin", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "rules", tmp_path / "rules")
    return tmp_path


@pytest.mark.parametrize("name", MUTANTS)
def test_a_named_test_kills_the_mutant(name: str, copy: Path) -> None:
    file, old, new, test = MUTANTS[name]
    source = copy / "fourmin" / file
    text = source.read_text()
    assert text.count(old) == 1, f"{file} no longer holds {old!r} once"
    source.write_text(text.replace(old, new))
    outcome = run_test(copy, test)
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("test", sorted({mutant[3] for mutant in MUTANTS.values()}))
def test_the_untouched_copy_passes(test: str, copy: Path) -> None:
    outcome = run_test(copy, test)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
