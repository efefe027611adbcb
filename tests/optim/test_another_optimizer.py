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
    usual = {"momentum": 0.9, "weight_decay": 0.0}

    def update(self, weights, grads, state, group):
        torch._foreach_mul_(state["mean"], group["momentum"])
        torch._foreach_add_(state["mean"], grads, alpha=1 - group["momentum"])
        signs = torch._foreach_sign(state["mean"])
        torch._foreach_add_(signs, weights, alpha=group["weight_decay"])
        torch._foreach_add_(weights, signs, alpha=-group["lr"])


def build(groups, config):
    return SignSgd(groups, config.base_learning_rate, momentum=config.momentum)
'''
ENTRY = """\
    "signsgd": OptimizerEntry(
        divisions=(OPEN,),
        fields=(*_DECAY_FIELDS, "momentum"),
        tensors=("mean",),
        moved=20,
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
    copy.replace("fourmin/recipe/optimizers.py", BEFORE, ENTRY + BEFORE)
    copy.python("docs/tools/recipe_pages.py")
    return copy


def test_it_takes_few_files_beside_those_that_are_generated(copy: TreeCopy) -> None:
    generated = {f"rules/1.0/schemas/{name}.schema.json" for name in ("campaign", "result")}
    by_hand = copy.changed() - generated - {"docs/configuration.md"}
    assert generated < copy.changed()
    assert all(name.startswith("fourmin/") for name in by_hand)
    assert 2 <= len(by_hand) <= MOST_FILES


def test_it_is_trained_logged_saved_and_validated(copy: TreeCopy) -> None:
    results = str(copy.root / "results")
    signsgd = ["--set", "optimizer=signsgd", "--set", "division=open", "--set", "device=cpu"]
    options = ["--practice", "--runs", "1", "--max-steps", "3", "--results-dir", results]
    options += ["--set", "base_learning_rate=0.001"]
    assert "checked: valid" in copy.fourmin("run", *options, *signsgd)
    copy.fourmin("validate", results)
    (log,) = (copy.root / "results").glob("*/run-1/events.log")
    assert '"opt_name", "value": "signsgd"' in log.read_text()
    assert '"opt_weight_decay"' in log.read_text()
    closed = ("--set", "optimizer=signsgd", "--set", "division=closed")
    refused = copy.fourmin("run", *options, *closed, code=2)
    assert "signsgd is not for the closed division" in refused


def test_it_is_estimated(copy: TreeCopy) -> None:
    options = ["--preset", "resnet50-8k", "--set", "optimizer=signsgd", "--set", "division=open"]
    copy.fourmin("estimate", *options)
    refused = copy.fourmin("estimate", *options, "--set", "step=fast", code=2)
    assert "the fast step has no update for signsgd" in refused
