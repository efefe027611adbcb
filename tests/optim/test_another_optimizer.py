"""An optimizer that a newcomer adds to a copy: few files, and the whole tool knows it."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

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
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("copy")
    leave = shutil.ignore_patterns("__pycache__")
    for folder in ("fourmin", "rules", "docs", "tests/presets/golden"):
        shutil.copytree(ROOT / folder, root / folder, ignore=leave)
    (root / "fourmin/training/optim/signsgd.py").write_text(MODULE)
    entries = root / "fourmin/recipe/optimizers.py"
    text = entries.read_text()
    assert text.count(BEFORE) == 1
    entries.write_text(text.replace(BEFORE, ENTRY + BEFORE))
    # As `make docs` does.
    assert python(root, "-m", "fourmin.recipe.pages").returncode == 0
    return root


def fourmin(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(copy, "-m", "fourmin", *arguments)


def python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the copy's package."""
    environment = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"XDG_STATE_HOME": str(copy / "state"), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_it_takes_few_files_beside_those_that_are_generated(copy: Path) -> None:
    def touched(folder: str) -> set[str]:
        files = [path for path in (copy / folder).rglob("*.*") if path.is_file()]
        originals = [(path, ROOT / path.relative_to(copy)) for path in files]
        return {
            path.name
            for path, original in originals
            if not original.exists() or not filecmp.cmp(path, original, shallow=False)
        }

    assert touched("rules") == {"campaign.schema.json", "result.schema.json"}
    assert touched("docs") == {"configuration.md"}
    assert touched("tests") == set()
    assert 2 <= len(touched("fourmin")) <= MOST_FILES


def test_it_is_trained_logged_saved_and_validated(copy: Path) -> None:
    results = str(copy / "results")
    signsgd = ["--set", "optimizer=signsgd", "--set", "division=open", "--set", "device=cpu"]
    options = ["--practice", "--runs", "1", "--max-steps", "3", "--results-dir", results]
    options += ["--set", "base_learning_rate=0.001"]
    done = fourmin(copy, "run", *options, *signsgd)
    assert "checked: valid" in done.stdout, done.stdout + done.stderr
    assert fourmin(copy, "validate", results).returncode == 0
    (log,) = (copy / "results").glob("*/run-1/events.log")
    assert '"opt_name", "value": "signsgd"' in log.read_text()
    assert '"opt_weight_decay"' in log.read_text()
    done = fourmin(copy, "run", *options, "--set", "optimizer=signsgd", "--set", "division=closed")
    assert done.returncode == 2
    assert "signsgd is not for the closed division" in done.stderr


def test_it_is_estimated(copy: Path) -> None:
    options = ["--preset", "resnet50-8k", "--set", "optimizer=signsgd", "--set", "division=open"]
    done = fourmin(copy, "estimate", *options)
    assert done.returncode == 0, done.stderr
    done = fourmin(copy, "estimate", *options, "--set", "step=fast")
    assert done.returncode == 2
    assert "the fast step has no update for signsgd" in done.stderr
