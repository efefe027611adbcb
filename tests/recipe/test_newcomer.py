"""A field, and a preset with its benchmark, added to a copy of the tree as a newcomer would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tree_copy import TreeCopy

FIELD = """\
    # Evaluation schedule and execution.
    learning_rate_scale: Annotated[
        float, Field("What every learning rate is multiplied by.", above=0, maximum=4, later=True)
    ] = 1.0
"""

PRESET = '''\
"""Fewer digits at a time."""

from __future__ import annotations

from dataclasses import replace

from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets.digits import digits


def few_digits() -> Configuration:
    """ResNet-8 on handwritten digits, 32 at a time."""
    return replace(
        digits(), preset="few-digits", benchmark="few-digits", global_batch_size=32, max_epochs=9,
        decay_epochs=9.0, eval_offset=0,
    )
'''

DIGITS = ("--preset", "digits")
PRACTICE = ("--practice", "--runs", "1", "--max-steps", "2", "--set", "device=cpu")


@pytest.fixture
def with_field(tmp_path: Path) -> TreeCopy:
    copy = TreeCopy(tmp_path)
    copy.replace(
        "fourmin/recipe/configuration.py", "    # Evaluation schedule and execution.\n", FIELD
    )
    copy.replace(
        "fourmin/recipe/schedule.py",
        "        base = config.base_learning_rate\n",
        "        base = config.base_learning_rate * config.learning_rate_scale\n",
    )
    copy.replace(
        "fourmin/cli/run_command.py",
        "    max_steps: options.MaxSteps = None,\n",
        "    max_steps: options.MaxSteps = None,\n"
        "    learning_rate_scale: Annotated[\n"
        '        float | None, options.of_field("learning_rate_scale")\n'
        "    ] = None,\n",
    )
    assert len(copy.changed()) == 3
    copy.python("docs/tools/recipe_pages.py")
    return copy


@pytest.fixture
def with_preset(tmp_path: Path) -> TreeCopy:
    copy = TreeCopy(tmp_path)
    (copy.root / "fourmin/recipe/presets/few_digits.py").write_text(PRESET)
    registry = "fourmin/recipe/presets/__init__.py"
    line = "from fourmin.recipe.presets.fashion_mnist import fashion_mnist\n"
    added = "from fourmin.recipe.presets.few_digits import few_digits\n"
    copy.replace(registry, line, line + added)
    copy.replace(registry, '    "digits": digits,\n',
                 '    "digits": digits,\n    "few-digits": few_digits,\n')  # fmt: skip
    benchmarks = copy.root / "rules/1.0/benchmarks"
    benchmark = json.loads((benchmarks / "digits.json").read_text())
    benchmark |= {
        "name": "few-digits",
        "quality": {"metric": "top-1 accuracy", "target": 0.9},
        "evaluation": {"every_epochs": 3, "offsets": [0]},
        "runs": 3,
    }
    (benchmarks / "few-digits.json").write_text(json.dumps(benchmark, indent=2) + "\n")
    assert len(copy.changed()) == 3
    copy.python("docs/tools/recipe_pages.py")
    return copy


def test_a_field_needs_three_files_and_shows_everywhere(with_field: TreeCopy) -> None:
    page = (with_field.root / "docs" / "configuration.md").read_text()
    assert "| greater than 0 and at most 4 |  | `1.0` |" in page
    for name in ("campaign", "result"):
        path = with_field.root / "rules" / "1.0" / "schemas" / f"{name}.schema.json"
        schema = json.loads(path.read_text())["$defs"]["configuration"]
        assert schema["properties"]["learning_rate_scale"]["type"] == "number"
        assert "learning_rate_scale" not in schema["required"]
    golden = ("-m", "pytest", "-q", "tests/presets/test_presets.py")
    assert "presets.json has changed" in with_field.python(*golden, code=1)
    with_field.python(*golden, "--update-golden")
    frozen = json.loads((with_field.root / "tests/presets/golden/presets.json").read_text())
    assert frozen["digits"]["learning_rate_scale"] == 1.0
    assert "What every learning rate is multiplied by." in with_field.fourmin("run", "--help")
    assert "learning_rate_scale = 1.0" in with_field.fourmin("presets", "digits")
    said = with_field.fourmin("run", *PRACTICE, "--set", "learning_rate_scale=4.5", code=2)
    assert "learning_rate_scale must be greater than 0 and at most 4, not 4.5" in said
    said = with_field.fourmin("run", "--learning-rate-scale", "0", "--dry-run", code=2)
    assert "learning_rate_scale must be greater than 0 and at most 4, not 0.0" in said
    said = with_field.fourmin("estimate", *DIGITS, "--set", "learning_rate_scale=0", code=2)
    assert "must be greater than 0 and at most 4" in said
    doubled = ("--set", "learning_rate_scale=2", "--json")
    told = json.loads(with_field.fourmin("estimate", *DIGITS, *doubled))
    assert told["configuration"]["learning_rate_scale"] == 2.0


def test_a_preset_with_its_benchmark_needs_three_files(with_preset: TreeCopy) -> None:
    page = (with_preset.root / "docs" / "presets.md").read_text()
    assert "| `few-digits` | few-digits | 32 | 2 | 16 | ResNet-8 on handwritten digits" in page
    assert "32 at a time" in with_preset.fourmin("presets")
    told = json.loads(with_preset.fourmin("estimate", "--preset", "few-digits", "--json"))
    assert told["evaluations"] == 3
    plan = json.loads(
        with_preset.fourmin("run", "--practice", "--preset", "few-digits", "--dry-run", "--json")
    )
    assert "few-digits" in json.dumps(plan)


@pytest.mark.slow
def test_a_run_takes_the_new_field_and_validates(with_field: TreeCopy) -> None:
    # What the rules hold the learning rate against is an implementation of their own.
    with_field.replace(
        "fourmin/rules/learning.py",
        "    base, warmup = config.base_learning_rate,",
        "    base, warmup = config.base_learning_rate * config.learning_rate_scale,",
    )
    losses = {}
    for scale, given in (("1", ()), ("2", ("--set", "learning_rate_scale=2"))):
        # Without a warmup the second step shows what the first one did.
        with_field.fourmin("run", *PRACTICE, *given, "--seed", "7", "--set", "warmup_epochs=0",
                           "--results-dir", scale)  # fmt: skip
        (path,) = with_field.root.glob(f"{scale}/*/run-1/result.json")
        result = json.loads(path.read_text())
        assert result["configuration"]["learning_rate_scale"] == float(scale)
        losses[scale] = result["first_losses"]
        assert "1 campaign by ruleset 1.0: 0 errors" in with_field.fourmin("validate", scale)
    first, second = zip(*losses.values(), strict=True)
    assert len(set(first)) == 1
    assert len(set(second)) == 2


@pytest.mark.slow
def test_a_run_of_the_new_preset_validates(with_preset: TreeCopy) -> None:
    with_preset.fourmin("run", "--preset", "few-digits", *PRACTICE)
    (path,) = with_preset.root.glob("results/*/campaign.json")
    plan = json.loads(path.read_text())
    assert (plan["preset"], plan["benchmark"]) == ("few-digits", "few-digits")
    assert "1 campaign by ruleset 1.0: 0 errors" in with_preset.fourmin("validate", "results")
