"""Holds what commands print as JSON against docs/output.schema.json."""

from __future__ import annotations

import json
from typing import Any

import json_page
from jsonschema import Draft202012Validator

SCHEMA = json.loads(json_page.SCHEMA.read_text())


def require_kind(found: dict[str, Any], name: str) -> None:
    """Fail unless `found` is a document of the kind, and of no other."""
    validator = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})
    assert [error.message for error in validator.iter_errors(found)] == []
    assert list(found)[:2] == ["schema_version", "kind"]
    assert Draft202012Validator(SCHEMA).is_valid(found)
