"""Writes what follows from the observations: `fitted.toml`, and the tables of docs/estimate.md."""

from __future__ import annotations

import sys
from pathlib import Path

from marks import replace_between

from fourmin.estimate import fitted
from fourmin.estimate.render import validation_lines
from fourmin.estimate.validation import Validation, validate

BEGIN, END = "<!-- generated: validation -->\n", "<!-- end of what is generated -->\n"
FITTED_FILE = Path(fitted.__file__).with_name("fitted.toml")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "estimate.md"

_FITTED = """\
# Written by `make docs`; a test makes it anew.

# What no source states, fitted to the figures in observations.toml.
fixed_pass_seconds = {fixed:.6f}
overlap_cost = {cost:.4f}

# Errors in points of efficiency: in the mean, on systems left out of the fit; in the mean, on
# further systems of others; at most, on any of them.
mean_error = {mean:.1f}
further_error = {further:.1f}
largest_error = {largest:.1f}

# Half of the 80% interval, as a share of the estimated efficiency.
interval = {interval:.4f}
"""


def fitted_text(validation: Validation) -> str:
    """The content of `fitted.toml`."""
    return _FITTED.format(
        fixed=validation.numbers.fixed_pass_seconds,
        cost=validation.numbers.overlap_cost,
        mean=validation.mean_error,
        further=validation.further_error,
        largest=validation.largest_error,
        interval=validation.interval,
    )


def with_tables(page: str, validation: Validation) -> str:
    """`page` with the tables between its two marks made anew."""
    tables = "\n".join(validation_lines(validation))
    return replace_between(page, BEGIN, END, f"\n{tables}\n\n")


def main() -> None:
    validation = validate()
    FITTED_FILE.write_text(fitted_text(validation), encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), validation), encoding="utf-8")
    sys.stdout.write(f"{FITTED_FILE}\n{PAGE}\n")


if __name__ == "__main__":
    main()
