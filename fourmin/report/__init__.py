"""Reports: comparable benchmark results, and one renderer a format.

Text comes from a module a format; charts alone are files of a chart that is named.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

from fourmin.base.errors import FourminError, list_names, unknown
from fourmin.report.model import Comparison
from fourmin.report.side_by_side import SideBySide

Renderer = Callable[[Comparison], str]
ChartRenderer = Callable[[Comparison], bytes]
PairRenderer = Callable[[SideBySide], str]

_RENDERERS = {
    "table": "fourmin.report.table",
    "markdown": "fourmin.report.markdown",
    "csv": "fourmin.report.csv_format",
    "json": "fourmin.report.json_format",
    "html": "fourmin.report.page",
    "github": "fourmin.report.github",
    "junit": "fourmin.report.junit",
}

GATE_FORMATS = ("github", "junit")
"""Those of two results with a gate only."""
FORMATS = tuple(name for name in _RENDERERS if name not in GATE_FORMATS)
SITE = "site"
"""The format of many files: see `load_site`."""
CHART_FORMATS = ("svg", "png")
"""Formats that are always a chart alone."""


def load_renderer(name: str, verbose: bool = False) -> Renderer:
    """The function that renders a report in a format; `verbose` is for that which says less.

    Raises FourminError.

    What takes a format long and needs no results begins here, beside collecting them.
    """
    module = _module(name)
    if hasattr(module, "prepare"):
        module.prepare()
    render: Callable[..., str] = module.render
    return partial(render, verbose=verbose) if name == "table" else render


def load_chart_renderer(name: str, chart: str) -> ChartRenderer:
    """The function that draws a chart as a file in a format. Raises FourminError."""
    from fourmin.report.charts import files

    known = (*CHART_FORMATS, "html")
    if name not in known:
        raise FourminError(
            f"a chart alone is no {name}",
            next_step=f"with --chart, take --format {list_names(known)}",
        )
    if chart not in files.CHARTS:
        raise unknown(f"no chart {chart!r}", chart, files.CHARTS)
    files.vl_convert()
    return partial(getattr(files, name), chart=chart)


def load_site() -> Callable[[Comparison], Iterator[tuple[str, str]]]:
    """The function that gives the files of a site with their paths. Raises FourminError."""
    page = _module("html")
    page.prepare()
    files: Callable[[Comparison], Iterator[tuple[str, str]]] = page.site
    return files


def load_pair_renderer(name: str) -> PairRenderer:
    """The function that renders two results side by side in a format. Raises FourminError."""
    module = _module(name)
    if not hasattr(module, "render_pair"):
        raise FourminError(
            f"two results cannot be compared as {name}",
            next_step="with --compare, take --format table, markdown, csv, json, github or junit",
        )
    render: PairRenderer = module.render_pair
    return render


def _module(name: str) -> ModuleType:
    if name not in _RENDERERS:
        raise unknown(f"no report format {name!r}", name, (*_RENDERERS, SITE, *CHART_FORMATS))
    return importlib.import_module(_RENDERERS[name])
