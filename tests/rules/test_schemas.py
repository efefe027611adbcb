"""The schemas are valid schemas, agree with the code, and every rule file is valid by them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fourmin.base.canonical import loads_strict
from fourmin.base.files import rulesets_folder
from fourmin.ledger.chain import KINDS
from fourmin.recipe.configuration import Configuration
from fourmin.results.run_result import STATUSES
from fourmin.results.schema import MOST_ERRORS, schema_errors

FOLDER = rulesets_folder() / "1.0"
SCHEMAS = sorted((FOLDER / "schemas").glob("*.json"))


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_a_schema_is_one_and_closes_its_objects(path: Path) -> None:
    schema: Any = loads_strict(path.read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("/draft/2020-12/schema")

    def closed(value: Any) -> None:
        if isinstance(value, dict):
            if "properties" in value and value.get("type") == "object":
                assert value["additionalProperties"] is False, value
                assert set(value.get("required", ())) <= set(value["properties"])
            for item in value.values():
                closed(item)
        elif isinstance(value, list):
            for item in value:
                closed(item)

    closed(schema)


@pytest.mark.parametrize("path", sorted((FOLDER / "benchmarks").glob("*.json")))
def test_every_benchmark_is_valid(path: Path) -> None:
    assert schema_errors("1.0", "benchmark", loads_strict(path.read_bytes())) == []


def test_the_ruleset_is_valid() -> None:
    value = loads_strict((FOLDER / "ruleset.json").read_bytes())
    assert schema_errors("1.0", "ruleset", value) == []


def test_the_plausibility_limits_are_valid() -> None:
    value = loads_strict((FOLDER / "plausibility.json").read_bytes())
    assert schema_errors("1.0", "plausibility", value) == []


def test_the_published_results_are_valid_and_each_is_told_once() -> None:
    value: Any = loads_strict((FOLDER / "published_results.json").read_bytes())
    assert schema_errors("1.0", "published", value) == []
    names = [row["id"] for row in value["results"]]
    assert len(set(names)) == len(names) >= 20


@pytest.mark.parametrize("name", ["campaign", "result"])
def test_the_configuration_has_the_codes_fields(name: str) -> None:
    schema = json.loads((FOLDER / "schemas" / f"{name}.schema.json").read_text())
    configuration = schema["$defs"]["configuration"]
    fields = {field.name: field for field in dataclasses.fields(Configuration)}
    assert set(configuration["properties"]) == set(fields)
    # A field that came later may be missing in an older campaign, if its default is what was.
    for name in set(fields) - set(configuration["required"]):
        assert fields[name].default is not dataclasses.MISSING, name


def test_the_ledger_has_the_codes_kinds() -> None:
    schema = json.loads((FOLDER / "schemas" / "ledger.schema.json").read_text())
    assert schema["properties"]["kind"]["enum"] == list(KINDS)
    assert set(KINDS) <= set(schema["$defs"])
    assert schema["$defs"]["run-result"]["properties"]["status"]["enum"] == list(STATUSES)


def test_errors_are_told_with_a_pointer_and_at_most_so_many() -> None:
    errors = schema_errors("1.0", "summary", {"runs": [{"run": 1.0}] * 30})
    assert len(errors) == MOST_ERRORS
    assert all(len(str(error)) < 300 for error in errors)
    value = {"campaign": "0" * 64 + "\n", "runs": [{"run": 1.0}]}
    told = {str(error) for error in schema_errors("1.0", "summary", value)}
    assert any(text.startswith("/runs/0: ") or text.startswith("/runs/0") for text in told)


@pytest.mark.timeout(60)
def test_a_long_list_is_read_in_linear_time() -> None:
    """10,000 objects compared with each other, as jsonschema does it, take minutes."""
    named: Any = [{"campaign": f"{i:064x}", "head": "0" * 64} for i in range(10_000)]

    def told(value: Any) -> list[str]:
        errors = schema_errors("1.0", "campaign", value, "campaigns")
        return [error.message for error in errors]

    assert told(named) == []
    assert told([*named[:-1], dict(reversed(named[0].items()))])[0].endswith("non-unique elements")
    assert told(7) == ["7 is not of type 'array'"]


@pytest.mark.parametrize(
    ("name", "part", "value"),
    [
        ("ledger", "seeds-assigned", {"beacon": "0" * 40, "registration": "self",
                                      "seeds": ["x"] * 1001}),
        ("system", "", {"other_software_stack": {str(i): None for i in range(101)}}),
    ],
)  # fmt: skip
def test_what_is_too_long_is_not_looked_into(name: str, part: str, value: Any) -> None:
    """Millions of values that nobody may write would take the checks minutes."""
    told = [str(error) for error in schema_errors("1.0", name, value, part)]
    assert not any("/seeds/0" in text for text in told)
    assert len([text for text in told if text.startswith(("/seeds", "/other"))]) == 1


@pytest.mark.parametrize("digest", ["0" * 64 + "\n", "0" * 63, "G" * 64, 5, None, "0" * 65])
def test_a_digest_is_64_hexadecimal_digits(digest: Any) -> None:
    record = {"data": {"campaign_sha256": digest}, "hash": "0" * 64, "index": 0,
              "kind": "campaign-open", "previous": "0" * 64, "time_ms": 0}  # fmt: skip
    assert schema_errors("1.0", "ledger", record)
    record["data"] = {"campaign_sha256": "0" * 64}
    assert schema_errors("1.0", "ledger", record) == []
