"""The page: one HTML file that needs nothing else and asks nobody for anything.

The tables are plain HTML, there for a reader without scripts too; everything else of a submission
is data in the page, from which `assets/*.js` builds its section when it is opened.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Any

from fourmin import __version__
from fourmin.base.errors import FourminError
from fourmin.base.installation import install
from fourmin.report.columns import PAGE
from fourmin.report.model import Comparison
from fourmin.report.page import vega
from fourmin.report.page.data import page_data
from fourmin.report.page.overview import overview
from fourmin.report.page.rules import rule_texts

if TYPE_CHECKING:
    from jinja2 import Environment

SCRIPTS = ("dom.js", "charts.js", "tables.js", "submission.js", "compare.js", "route.js")
"""Our scripts, in the order in which they need each other."""


def prepare() -> None:
    """Start what takes longest, so that it is done when the results are collected."""
    _environment()
    vega.start()


def render(comparison: Comparison) -> str:
    """The page as HTML. Raises FourminError where a library for it is missing."""
    environment = _environment()
    view = overview(comparison)
    library, own, style = vega.script(), _own_script(), _asset("page.css")
    text: str = environment.get_template("page.html").render(
        version=__version__,
        ruleset=comparison.ruleset,
        view=view,
        columns=[(column.page, column.kind, column.falls) for column in PAGE],
        rules=rule_texts(comparison),
        data=_json(page_data(view), comparison),
        library=library,
        own=own,
        style=style,
        policy=_policy((library, own), style),
    )
    return text


def _own_script() -> str:
    parts = "\n".join(_asset(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


def _policy(scripts: tuple[str, ...], style: str) -> str:
    """A content security policy under which only our scripts run and nothing is fetched."""
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _json(value: Any, comparison: Comparison) -> str:
    """JSON that may stand in a script element: it can neither end it nor begin a comment.

    Paths of this machine are in none of its texts.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    text = comparison.local(text, lambda path: json.dumps(path)[1:-1])
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


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
