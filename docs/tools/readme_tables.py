"""Writes README's tables of this repository's own submissions, from the repository's root."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from marks import replace_between

from fourmin.report.collect import collect
from fourmin.report.columns import DETAILS, TEXT
from fourmin.report.markdown import escape, result_table
from fourmin.report.wording import tables

BEGIN = "<!-- submissions: written by `make docs` -->\n"
END = "<!-- end of submissions -->\n"
_SHOWN = (
    "system", "chips", "batch", "scaled", "time", "95% interval", "CV", "epochs/RCP", "images/s",
    "scaling", "runs", "evidence", "campaigns", "checked",
)  # fmt: skip


def submissions_tables(folder: Path) -> Iterator[str]:
    """The lines of one Markdown table a benchmark, of everything below `folder`."""
    known = {column.name: column for column in (*DETAILS, *TEXT)}
    columns = [known[name] for name in _SHOWN]
    for heading, results in tables(collect([folder]).results):
        yield from ("", f"{escape(heading)}:", "")
        yield from result_table(results, columns)


def with_tables(readme: str, folder: Path) -> str:
    """README's text with the tables of today. Raises ValueError where a mark is missing."""
    lines = "".join(f"{line}\n" for line in submissions_tables(folder))
    return replace_between(readme, BEGIN, END, f"{lines}\n")


def main() -> None:
    path = Path("README.md")
    path.write_text(with_tables(path.read_text(), Path("submissions")))
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
