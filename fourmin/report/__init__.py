"""Reports: comparable benchmark results, and one renderer a format."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

from fourmin.errors import FourminError, list_names
from fourmin.report.model import Comparison
from fourmin.report.side_by_side import SideBySide

Renderer = Callable[[Comparison], str]
PairRenderer = Callable[[SideBySide], str]

_RENDERERS = {
    "table": "fourmin.report.table",
    "markdown": "fourmin.report.markdown",
    "csv": "fourmin.report.csv_format",
    "json": "fourmin.report.json_format",
}

FORMATS = tuple(_RENDERERS)


def load_renderer(name: str) -> Renderer:
    """The function that renders a report in a format. Raises FourminError."""
    render: Renderer = _module(name).render
    return render


def load_pair_renderer(name: str) -> PairRenderer:
    """The function that renders two results side by side in a format. Raises FourminError."""
    module = _module(name)
    if not hasattr(module, "render_pair"):
        raise FourminError(
            f"two results cannot be compared as {name}",
            next_step="with --compare, take --format table, markdown, csv or json",
        )
    render: PairRenderer = module.render_pair
    return render


def _module(name: str) -> ModuleType:
    if name not in _RENDERERS:
        raise FourminError(f"no report format {name!r}", next_step=f"known: {list_names(FORMATS)}")
    return importlib.import_module(_RENDERERS[name])
