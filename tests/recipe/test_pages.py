"""What is made from fields and presets is what lies there, and says what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import recipe_pages as pages

from fourmin.recipe.configuration import FIELDS
from fourmin.recipe.presets import PRESETS, load_preset

ROOT = Path(__file__).resolve().parents[2]
# Those of the first submissions lack these; each was run with what is the default now.
LATER = {
    "decoder", "decoded_cache", "checkpoints", "gradient_dtype", "tuning", "hybrid_large",
    "adam_beta1", "adam_beta2", "adam_epsilon", "phases", "largest_batch",
    "learning_rate_points", "crop_area", "eval_rectangles", "recompute",
    "gradient_density", "density_warmup_epochs", "gradient_clip", "deterministic",
    "algorithm", "servers", "n_fetch", "n_push", "warm_start_epochs", "lbfgs_pairs",
    "elastic_period", "elastic_rate",
}  # fmt: skip


@pytest.mark.parametrize("path", [str(path.relative_to(ROOT)) for path in pages.generated()])
def test_nothing_that_is_generated_is_stale(path: str) -> None:
    assert (ROOT / path).read_text() == pages.generated()[ROOT / path], "run `make docs`"


def test_a_configuration_may_lack_what_came_later_and_nothing_else() -> None:
    schema = pages.configuration_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    whole = load_preset("digits").resolved(0, keep_workers=True).to_json()
    jsonschema.validate(whole, schema)
    for name in whole:
        lacking = {key: value for key, value in whole.items() if key != name}
        assert valid(lacking, schema) == (name in LATER), name
    assert not valid({**whole, "another": 1}, schema)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("global_batch_size", "64"),
        ("global_batch_size", 2**53),
        ("base_learning_rate", None),
        ("nesterov", 1),
        ("optimizer", "adam\n"),
        ("device", "auto"),
        ("model", "../model"),
        ("tuning", ["ring"]),
        ("pixel_mean", 78.0),
        ("max_steps", "none"),
    ],
)
def test_another_type_or_form_is_refused(name: str, wrong: Any) -> None:
    whole = load_preset("digits").resolved(0, keep_workers=True).to_json()
    assert not valid({**whole, name: wrong}, pages.configuration_schema())


def valid(value: Any, schema: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def test_the_pages_name_every_field_and_preset() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(FIELDS)
    assert all(row.count("|") == 7 for row in rows)
    presets = (ROOT / "docs" / "presets.md").read_text()
    assert all(f"| `{name}` | {load_preset(name).benchmark} |" in presets for name in PRESETS)
