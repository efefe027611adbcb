"""An optimizer that a newcomer adds to a copy: few files, and the whole tool knows it."""

from __future__ import annotations

import pytest
from tree_copy import TreeCopy

MODULE = '''\
"""Sign SGD with momentum (Bernstein et al. 2018, arXiv 1802.04434)."""

import torch

from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.training.optim.foreach import ForeachOptimizer


class SignSgd(ForeachOptimizer):
    entry = OPTIMIZERS["signsgd"]

    def update(self, weights, grads, state, group):
        torch._foreach_mul_(state["mean"], group["momentum"])
        torch._foreach_add_(state["mean"], grads, alpha=1 - group["momentum"])
        signs = torch._foreach_sign(state["mean"])
        torch._foreach_add_(signs, weights, alpha=group["weight_decay"])
        torch._foreach_add_(weights, signs, alpha=-group["lr"])


def build(groups, config):
    return SignSgd(groups, {"lr": config.base_learning_rate, "momentum": config.momentum})
'''
ENTRY = """\
    "signsgd": OptimizerEntry(
        divisions=(OPEN,),
        fields=(*_DECAY_FIELDS, "momentum"),
        tensors=("mean",),
        logged={
            keys.OPT_BASE_LEARNING_RATE: "base_learning_rate",
            keys.OPT_WEIGHT_DECAY: "weight_decay",
        },
    ),
"""
BEFORE = '    "adamw": OptimizerEntry('
MOST_FILES = 4

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> TreeCopy:
    copy = TreeCopy(tmp_path_factory.mktemp("copy"))
    (copy.root / "fourmin/training/optim/signsgd.py").write_text(MODULE)
    copy.insert("fourmin/recipe/optimizers.py", BEFORE, ENTRY)
    copy.make_docs()
    return copy


def test_it_takes_few_files_beside_those_that_are_generated(copy: TreeCopy) -> None:
    schemas = {f"rules/1.0/schemas/{name}.schema.json" for name in ("campaign", "result")}
    assert copy.changed("rules") == schemas
    assert copy.changed("docs") == {"docs/configuration.md"}
    assert copy.changed("tests") == set()
    assert 2 <= len(copy.changed("fourmin")) <= MOST_FILES


def test_it_is_trained_logged_saved_and_validated(copy: TreeCopy) -> None:
    results = str(copy.root / "results")
    signsgd = ["--set", "optimizer=signsgd", "--set", "division=open", "--set", "device=cpu"]
    options = ["--practice", "--runs", "1", "--max-steps", "3", "--results-dir", results]
    options += ["--set", "base_learning_rate=0.001"]
    done = copy.fourmin("run", *options, *signsgd)
    assert "checked: valid" in done.stdout, done.stdout + done.stderr
    assert copy.fourmin("validate", results).returncode == 0
    (log,) = (copy.root / "results").glob("*/run-1/events.log")
    assert '"opt_name", "value": "signsgd"' in log.read_text()
    assert '"opt_weight_decay"' in log.read_text()
    done = copy.fourmin("run", *options, "--set", "optimizer=signsgd", "--set", "division=closed")
    assert done.returncode == 2
    assert "signsgd is not for the closed division" in done.stderr


def test_it_is_estimated(copy: TreeCopy) -> None:
    options = ["--preset", "resnet50-8k", "--set", "optimizer=signsgd", "--set", "division=open"]
    done = copy.fourmin("estimate", *options)
    assert done.returncode == 0, done.stderr
    done = copy.fourmin("estimate", *options, "--set", "step=fast")
    assert done.returncode == 2
    assert "the fast step has no update for signsgd" in done.stderr
