"""What a judge is: a function that applies one rule of the ruleset to a foreign run or run set.

The rule keeps its code, name and page; a judge says in its docstring what it looks at in the
files of that source, and may give a problem another severity than the rule's, where what is an
error in this project's own files is common in honest published ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fourmin.rules.rule import Problem

FOREIGN_RUN = "foreign run"
FOREIGN_SET = "foreign run set"


@dataclass(frozen=True)
class Judge:
    """One rule's application to the runs (`ForeignRun`) or run sets (`ForeignSet`) of a source."""

    code: str
    scope: str
    source: str
    check: Callable[[Any], Iterable[Problem]]

    @property
    def text(self) -> str:
        """What it looks at, for the rule's page."""
        return " ".join((inspect.getdoc(self.check) or "").split())


def judge(
    code: str, scope: str, source: str
) -> Callable[[Callable[[Any], Iterable[Problem]]], Judge]:
    """Make a judge of the decorated function."""
    return partial(Judge, code, scope, source)
