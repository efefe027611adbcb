"""A system's description, system.json: what must be told in it, and what is not told yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TOLD = (
    "submitter",
    "system_name",
    "host_processor_model_name",
    "host_memory_capacity",
    "host_storage_type",
    "framework",
    "operating_system",
)
_OF_ACCELERATORS = ("accelerator_model_name", "accelerator_memory_capacity")
_OF_NODES = ("host_networking",)
_PLACEHOLDER = re.compile(
    r"<.*>|\W*(?:(?:to ?do|tbd|fix ?me|to be|fill|complete|placeholder|unknown|x{2,})\b.*"
    r"|n\W?a|none|null)?\W*",
    re.IGNORECASE | re.DOTALL,
)


def untold(description: Mapping[str, Any]) -> list[str]:
    """The fields that are missing, empty or hold a placeholder.

    Accelerators are described where there are any, the network where there are several nodes.
    """
    fields = [*_TOLD]
    fields += _OF_ACCELERATORS if _count(description, "accelerators_per_node") else ()
    fields += _OF_NODES if _count(description, "number_of_nodes") > 1 else ()
    return [name for name in fields if is_blank(description.get(name, ""))]


def is_blank(value: object) -> bool:
    """Whether a field is empty or holds a placeholder, such as `none`."""
    return _PLACEHOLDER.fullmatch(str(value)) is not None


def _count(description: Mapping[str, Any], name: str) -> int:
    value = str(description.get(name, ""))
    return int(value) if value.isascii() and value.isdecimal() else 0
