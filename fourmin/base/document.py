"""What every JSON that a command prints begins with: docs/json.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEMA_VERSION = 1


def document(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` as a document of kind `fourmin-<name>`; what it says of itself stays."""
    return {"schema_version": SCHEMA_VERSION, "kind": f"fourmin-{name}", **content}
