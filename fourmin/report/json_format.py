"""The JSON that scripts rely on."""

from __future__ import annotations

import json
from typing import Any

from fourmin.base.document import document
from fourmin.report.model import Comparison
from fourmin.report.side_by_side import SideBySide


def render(comparison: Comparison) -> str:
    """The whole comparison; failed, pending and practice campaigns stand beside the results."""
    return _text(
        "report",
        {
            "ruleset": comparison.ruleset,
            **{
                name: [result.to_json() for result in getattr(comparison, name)]
                for name in ("results", "failed", "pending", "practice")
            },
        },
    )


def render_pair(pair: SideBySide) -> str:
    return _text("comparison", pair.to_json())


def _text(kind: str, content: dict[str, Any]) -> str:
    return json.dumps(document(kind, content), indent=2, allow_nan=False) + "\n"
