"""The rules' pages as text. `python -m fourmin.rules.pages` writes `rules/<version>/RULES.md`."""

from __future__ import annotations

import sys
from itertools import groupby

from fourmin.base.files import rulesets_folder
from fourmin.rules.registry import RULES
from fourmin.rules.rule import GROUPS, HEADINGS, Rule
from fourmin.ruleset import CURRENT


def page(rule: Rule, level: str = "#") -> str:
    """One rule's page in Markdown, its headings below `level`."""
    parts = [f"{level} {rule.code} {rule.name} ({rule.severity})", rule.summary]
    for heading in HEADINGS:
        parts += [f"{level}# {heading}", rule.sections.get(heading, "")]
    for source, text in rule.foreign:
        parts.append(f"In files of {source}: {text}")
    return "\n\n".join(parts) + "\n"


def all_pages() -> str:
    """RULES.md: every rule, by group."""
    parts = [
        f"# Rules of ruleset {CURRENT}",
        "Generated from the rules themselves by `python -m fourmin.rules.pages`; do not edit.\n"
        "`fourmin rules CODE` prints one of these pages. An error makes a result invalid, a "
        "warning\nis for a reader to judge, a note says what was disclosed.",
        "| code | name | severity | what holds |\n|---|---|---|---|\n"
        + "\n".join(f"| {r.code} | {r.name} | {r.severity} | {r.summary} |" for r in RULES),
    ]
    for group, rules in groupby(RULES, key=lambda rule: rule.code[:3]):
        parts.append(f"## {group}: {GROUPS[group]}")
        parts.extend(page(rule, "###").rstrip("\n") for rule in rules)
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write RULES.md into the current ruleset's folder and say where."""
    path = rulesets_folder() / CURRENT / "RULES.md"
    path.write_text(all_pages())
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
