"""The JSON that scripts rely on."""

from __future__ import annotations

import json

from fourmin.report.model import Comparison


def render(comparison: Comparison) -> str:
    """The object of product.md; failed and practice campaigns stand beside the results."""
    document = {
        "ruleset": comparison.ruleset,
        "results": [result.to_json() for result in comparison.results],
        "failed": [result.to_json() for result in comparison.failed],
        "practice": [result.to_json() for result in comparison.practice],
    }
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
