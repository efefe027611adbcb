"""`fourmin validate`: checks result files by the rules, for people and for CI."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from fourmin.cli import options


class Format(str, Enum):
    """How to print what was found."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"
    junit = "junit"


def validate(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            help="Campaigns, runs, submissions, MLPerf or DAWNBench results, or folders of these; "
            "default: submissions and results.",
        ),
    ] = None,
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
    verbose: options.Verbose = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing where the exit code is 0.")
    ] = False,
) -> None:
    """Check campaigns, runs and submissions by the rules.

    Exit code 0: no error. 1: at least one error (with --strict: or warning, or a required check
    that could not be made). 2: wrong usage, or nothing there that could be judged.
    """
    from fourmin.base.errors import FourminError
    from fourmin.cli.output import say
    from fourmin.rules.engine import check
    from fourmin.rules.render import FORMATS, as_text

    if None not in (base, before):
        raise FourminError("--base and --before are for a change and for a push", "one is possible")
    new = before is not None and set(before) == {"0"}
    paths = paths or options.usual_folders("check")
    report = check(paths, base=base, before=None if new else before)
    passes = report.clean if strict else report.ok
    if output is Format.text:
        say(() if quiet and passes else as_text(report, verbose))
    else:
        sys.stdout.writelines(f"{line}\n" for line in FORMATS[output.value](report))
    sys.stdout.flush()
    if not report.judged:
        raise FourminError(
            f"nothing to check in {', '.join(map(str, paths))}",
            "\n".join(dict.fromkeys(verdict.not_judged for verdict in report.checked)),
            "name a folder that `fourmin run` wrote, such as results/<campaign>, or finished logs "
            "of ResNet-50",
        )
    if not passes:
        raise typer.Exit(1)
