"""Reports: comparable benchmark results, and one renderer a format."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from fourmin.errors import FourminError, list_names
from fourmin.report.model import Comparison

Renderer = Callable[[Comparison], str]

_RENDERERS = {
    "table": "fourmin.report.table",
    "markdown": "fourmin.report.markdown",
    "csv": "fourmin.report.csv_format",
    "json": "fourmin.report.json_format",
}

FORMATS = tuple(_RENDERERS)


def load_renderer(name: str) -> Renderer:
    """The function that renders a comparison in a format. Raises FourminError."""
    if name not in _RENDERERS:
        raise FourminError(f"no report format {name!r}", next_step=f"known: {list_names(FORMATS)}")
    render: Renderer = importlib.import_module(_RENDERERS[name]).render
    return render
