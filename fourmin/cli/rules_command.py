"""`fourmin rules`: lists the rules, or prints one rule's page."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fourmin.base.errors import FourminError
from fourmin.cli import options


def rules(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="A code or name, such as LED004.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the rules, or explain one."""
    from fourmin.cli.output import print_json, say
    from fourmin.rules.pages import page
    from fourmin.rules.registry import RULES

    shown = [r for r in RULES if code is None or code.lower() in (r.code.lower(), r.name)]
    if not shown:
        raise _unknown(str(code))
    if as_json:
        facts = ("code", "name", "severity", "scope", "summary")
        print_json("rules", {"rules": [{name: getattr(r, name) for name in facts} for r in shown]})
    elif code is None:
        widest = max(len(rule.name) for rule in RULES)
        say(f"{r.code}  {r.name:<{widest}}  {r.severity:<7}  {r.summary}" for r in RULES)
    else:
        sys.stdout.write(page(shown[0]))


def _unknown(code: str) -> FourminError:
    from difflib import get_close_matches

    from fourmin.rules.registry import RULES

    codes, names = [rule.code for rule in RULES], [rule.name for rule in RULES]
    near = [known for known in codes if known.startswith(code.upper())]
    near = near or get_close_matches(code.upper(), codes, 5)
    near = near or get_close_matches(code.lower(), names, 5)
    return FourminError(
        f"no rule {code}",
        f"near: {', '.join(near)}" if near else "",
        "`fourmin rules` lists all",
    )
