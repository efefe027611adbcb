"""`fourmin validate`: checks result files by the rules, for people and for CI."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Format(str, Enum):
    """How to print what was found."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"
    junit = "junit"


def validate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Campaigns, runs, submissions, MLPerf or DAWNBench results, or folders of these.",
        ),
    ],
    output: Annotated[
        Format, typer.Option("--format", help="How to print the findings.")
    ] = Format.text,
    base: Annotated[
        str | None,
        typer.Option(
            "--base", metavar="REF", help="Also check what changed in git since this reference."
        ),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="COMMIT",
            help="Also check a push that found the branch at this commit; zeros alone: a new one.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit with 1 also for a warning, or a required check not made."
        ),
    ] = False,
) -> None:
    """Check campaigns, runs and submissions by the rules.

    Exit code 0: no error. 1: at least one error (with --strict: or warning, or a required check
    that could not be made). 2: wrong usage, or nothing there that could be judged.
    """
    from fourmin.base.errors import FourminError
    from fourmin.rules.engine import check
    from fourmin.rules.render import FORMATS

    if None not in (base, before):
        raise FourminError("--base and --before are for a change and for a push", "one is possible")
    new = before is not None and set(before) == {"0"}
    report = check(paths, base=base, before=None if new else before)
    for line in FORMATS[output.value](report):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    if not report.judged:
        raise FourminError(
            f"nothing to check in {', '.join(map(str, paths))}",
            "\n".join(dict.fromkeys(verdict.not_judged for verdict in report.checked)),
            "name a folder that `fourmin run` wrote, such as results/<campaign>, or finished logs "
            "of ResNet-50",
        )
    if not (report.clean if strict else report.ok):
        raise typer.Exit(1)
