"""The plan as a type against the campaign.json files that were submitted, and their schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plans import make_plan

from fourmin.base.canonical import canonical_bytes, sha256_hex
from fourmin.base.errors import FourminError
from fourmin.base.files import json_bytes, rulesets_folder
from fourmin.results.plan import EarlierCampaign, Plan

SUBMITTED = sorted(Path(__file__).parents[2].glob("submissions/*/*/*/*/campaign.json"))
EARLIER = {"campaign": "d" * 64, "head": "e" * 64}


@pytest.mark.parametrize("path", SUBMITTED, ids=lambda path: path.parent.name)
def test_a_submitted_plan_is_written_as_it_was_read(path: Path) -> None:
    content = json.loads(path.read_bytes())
    plan = Plan.from_json(content)
    assert json_bytes(plan.to_json()) == path.read_bytes()
    assert sha256_hex(canonical_bytes(plan.configuration)) == content["configuration_digest"]
    assert plan.typed_configuration.preset == plan.preset


def test_there_are_submissions() -> None:
    assert SUBMITTED


def test_the_fields_are_those_of_the_schema() -> None:
    schema: Any = json.loads((rulesets_folder() / "1.0/schemas/campaign.schema.json").read_bytes())
    assert set(
        make_plan(
            practice_seed=7, ranked_batch=64, package_commit="e" * 40, earlier_unseen=["a branch"]
        ).to_json()
    ) == set(schema["properties"])
    assert set(make_plan().to_json()) == set(schema["required"])


def test_earlier_campaigns_and_a_first_seed() -> None:
    content = make_plan().to_json() | {"earlier_campaigns": [EARLIER], "practice_seed": 0}
    plan = Plan.from_json(content)
    assert plan.earlier_campaigns == [EarlierCampaign(**EARLIER)]
    assert plan.practice_seed == 0
    assert plan.to_json() == content


@pytest.mark.parametrize("name", sorted(make_plan().to_json().keys() - {"schema_version"}))
def test_a_plan_that_lacks_something_is_none(name: str) -> None:
    content = make_plan().to_json()
    del content[name]
    with pytest.raises((KeyError, TypeError), match=name):
        Plan.from_json(content)


def test_a_configuration_that_is_none_is_kept_but_has_no_type() -> None:
    plan = Plan.from_json(make_plan(configuration={"global_batch_size": "many"}).to_json())
    assert plan.configuration == {"global_batch_size": "many"}
    with pytest.raises(FourminError):
        _ = plan.typed_configuration
