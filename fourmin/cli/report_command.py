"""`fourmin report`: compares campaigns and submissions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Campaigns, or folders of them; default: submissions and results."),
    ] = None,
    output_format: Annotated[
        str, typer.Option("--format", help="table, markdown, csv or json.")
    ] = "table",
    output: Annotated[
        Path | None, typer.Option(help="Write to this file instead of standard output.")
    ] = None,
) -> None:
    """Compare benchmark results: every run, the spread, and what the checks found.

    An invalid result is shown as such; the exit code is 0 all the same.
    """
    import sys

    from fourmin.errors import FourminError
    from fourmin.files import write_durably
    from fourmin.report import load_renderer
    from fourmin.report.collect import collect

    render = load_renderer(output_format)
    if not paths:
        paths = [folder for folder in (Path("submissions"), Path("results")) if folder.is_dir()]
        if not paths:
            raise FourminError(
                "nothing to report on",
                "there is no folder submissions or results here",
                "name campaigns or folders of them, or make one with `fourmin run`",
            )
    text = render(collect(paths))
    if output is None:
        sys.stdout.write(text)
    else:
        try:
            write_durably(output, text.encode())
        except OSError as error:
            raise FourminError(f"cannot write {output}", error.strerror or str(error)) from None
