"""The JSON that scripts rely on."""

from __future__ import annotations

import json
from typing import Any

from fourmin.report.model import Comparison
from fourmin.report.side_by_side import SideBySide


def render(comparison: Comparison) -> str:
    """The whole comparison; failed, pending and practice campaigns stand beside the results."""
    return _text(
        {
            "ruleset": comparison.ruleset,
            "results": [result.to_json() for result in comparison.results],
            "failed": [result.to_json() for result in comparison.failed],
            "pending": [result.to_json() for result in comparison.pending],
            "practice": [result.to_json() for result in comparison.practice],
        }
    )


def render_pair(pair: SideBySide) -> str:
    return _text(pair.to_json())


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
