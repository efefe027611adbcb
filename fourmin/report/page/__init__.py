"""The page: one HTML file that needs nothing else and asks nobody for anything.

The tables are plain HTML, there for a reader without scripts too; everything else of a submission
is data in the page, from which `assets/*.js` builds its section when it is opened.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Any

from fourmin import __version__
from fourmin.base.errors import FourminError
from fourmin.base.installation import install
from fourmin.report import csv_format, json_format
from fourmin.report.columns import PAGE
from fourmin.report.model import Comparison
from fourmin.report.page import vega
from fourmin.report.page.data import page_data
from fourmin.report.page.overview import Overview, overview
from fourmin.report.page.rules import rule_texts

if TYPE_CHECKING:
    from jinja2 import Environment

SCRIPTS = ("dom.js", "charts.js", "tables.js", "submission.js", "compare.js", "route.js")
"""Our scripts, in the order in which they need each other."""
PAGES = "results/"
"""Where a site has the pages of its results."""
_LEFT_OUT: dict[str, list[Any] | dict[str, Any]] = {
    "charts": {}, "runs": [], "findings": [], "ledger": [], "evidence": [],
}  # fmt: skip
"""What the index of a site does not say of a result, whose page does."""


def prepare() -> None:
    """Start what takes longest, so that it is done when the results are collected."""
    _environment()
    vega.start()


def render(comparison: Comparison) -> str:
    """The page as HTML. Raises FourminError where a library for it is missing."""
    view = overview(comparison)
    return _page(comparison, view, page_data(view), "")


def site(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """The files of a site, each with its path: an index, a page for each result, all data.

    The pages of results have their scripts beside them. Raises FourminError as `render` does.
    """
    view = overview(comparison)
    data = page_data(view)
    sections = data["results"]
    style = _asset("page.css")
    for anchor, section in sections.items():
        one = {**data, "figures": [], "results": {anchor: section}}
        text = (
            _environment()
            .get_template("result.html")
            .render(
                version=__version__,
                title=f"{section['title']}: time to train",
                section=section,
                data=_json(one, comparison),
                style=style,
                policy=_policy("'self'", style),
            )
        )
        yield f"{PAGES}{anchor}.html", comparison.local(text)
    short = {anchor: {**section, **_LEFT_OUT} for anchor, section in sections.items()}
    index = {**data, "results": short, "pages": PAGES}
    yield "index.html", _page(comparison, view, index, PAGES)
    yield "charts.js", vega.script()
    yield "result.js", _own_script("dom.js", "charts.js", "submission.js", "single.js")
    yield "data.json", comparison.local(json_format.render(comparison), _in_json)
    yield "data.csv", comparison.local(csv_format.render(comparison))


def _page(comparison: Comparison, view: Overview, data: dict[str, Any], pages: str) -> str:
    library, own, style = vega.script(), _own_script(*SCRIPTS), _asset("page.css")
    text: str = (
        _environment()
        .get_template("page.html")
        .render(
            version=__version__,
            title=f"Time to train: {view.headline}",
            ruleset=comparison.ruleset,
            view=view,
            columns=[(column.page, column.kind, column.falls) for column in PAGE],
            rules=rule_texts(comparison),
            data=_json(data, comparison),
            pages=pages,
            address=lambda anchor: f"{pages}{anchor}.html" if pages else f"#{anchor}",
            library=library,
            own=own,
            style=style,
            policy=_policy(f"{_hash(library)} {_hash(own)}", style),
        )
    )
    return text


def _own_script(*names: str) -> str:
    parts = "\n".join(_asset(name) for name in names)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


def _policy(scripts: str, style: str) -> str:
    """A content security policy under which only our scripts run and nothing is fetched."""
    return (
        f"default-src 'none'; script-src {scripts}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _json(value: Any, comparison: Comparison) -> str:
    """JSON that may stand in a script element: it can neither end it nor begin a comment.

    Paths of this machine are in none of its texts.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    text = comparison.local(text, _in_json)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _asset(name: str) -> str:
    return (resources.files(__name__) / "assets" / name).read_text("utf-8")


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise FourminError(
            "the page needs jinja2 and vl-convert-python",
            "the plain install writes tables, Markdown, CSV and JSON",
            install("report"),
        ) from None
    return Environment(
        loader=PackageLoader(__name__, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
