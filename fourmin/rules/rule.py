"""What a rule is: a function with a code, a name, a severity, a scope and a page.

The page is the function's docstring: one line that says what holds, then four sections under
the headings of `HEADINGS`. The hint of a finding is the first sentence of the last section.

The function takes a view and, by the names of its other parameters, what of it the rule cannot
do without (`fourmin.rules.needs`). Where one of them is missing the function is not called, and
the check could not be made.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

from fourmin.base.text import printable
from fourmin.rules.needs import NEEDS

ERROR = "error"
WARNING = "warning"
NOTE = "note"
SEVERITIES = (ERROR, WARNING, NOTE)

CAMPAIGN = "campaign"
RUN = "run"
SUBMISSION = "submission"
PACKAGE = "package"
TREE = "tree"
CHANGE = "change"
SCOPES = (CAMPAIGN, RUN, SUBMISSION, PACKAGE, TREE, CHANGE)
"""What a rule's function is given: a `CampaignView`, a `RunView`, a `SubmissionView`, a
`PackageView`, the list of all `CampaignView`s that are checked together, or a `ChangeView`."""

MOST_FINDINGS = 1000
"""Of one rule in one view."""

HEADINGS = ("What it checks", "Why it is bad", "Example", "How to put it right")

GROUPS = {
    "SCH": "schema",
    "LOG": "event log",
    "CLK": "clock",
    "DAT": "data",
    "EVA": "evaluation",
    "HYP": "hyperparameters",
    "SEE": "seeds",
    "RUN": "run set",
    "CNV": "convergence",
    "SYS": "system",
    "LED": "ledger",
    "PHY": "plausibility",
    "SUB": "package",
}


@dataclass(frozen=True)
class Problem:
    """What a rule's function yields: what is wrong, and where."""

    message: str
    line: int | None = None
    path: str | None = None
    """A file's name in the folder that the rule looks at (of a run: in its campaign's), the whole
    path where it looks at several folders, a change or others' results. None: the view's `home`.
    """
    hint: str = ""
    severity: str = ""
    """Another severity than the rule's, where another benchmark's files are judged."""
    unchecked: bool = False
    """Whether the check could not be made; `message` is the reason."""


NOT_CHECKED = "not checked: "


def unchecked(reason: str, path: str | None = None) -> Problem:
    """What a rule yields that has nothing to check with: a note, which is no pass."""
    return Problem(NOT_CHECKED + reason, path=path, severity=NOTE, unchecked=True)


@dataclass(frozen=True)
class Finding:
    """A problem with the rule that found it."""

    code: str
    name: str
    severity: str
    path: str
    line: int | None
    message: str
    hint: str
    waived: str | None = None
    """Why a maintainer lets this error stand, None where nobody does."""
    unchecked: bool = False
    """Whether the check could not be made; `message` is the reason."""

    @property
    def fails(self) -> bool:
        """Whether this is an error that no waiver covers."""
        return self.severity == ERROR and self.waived is None

    @property
    def reason(self) -> str:
        """Why the check could not be made."""
        return self.message.removeprefix(NOT_CHECKED)

    def to_json(self) -> dict[str, Any]:
        """As `fourmin validate --format json` gives it."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def text(self) -> str:
        """Code, place and message in one printable line."""
        return self.text_below("")

    def text_below(self, folder: str) -> str:
        """As `text`, its place from `folder` on where it lies there."""
        path = self.path
        if folder and path.startswith(os.path.join(folder, "")):
            path = os.path.relpath(path, folder)
        place = printable(path) + ("" if self.line is None else f":{self.line}")
        place = "" if path == folder else f" {place}"
        waived = f" [waived: {printable(self.waived)}]" if self.waived else ""
        return f"{self.code}{place}: {printable(self.message)}{waived}"


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """By path, line and code."""
    return sorted(findings, key=lambda finding: (finding.path, finding.line or 0, finding.code))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity, otherwise in the order that they have."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


Check = Callable[..., Iterable[Problem]]


@dataclass(frozen=True)
class Rule:
    """One rule of the ruleset."""

    code: str
    name: str
    severity: str
    scope: str
    check: Check
    foreign: tuple[tuple[str, str], ...] = ()
    """Sources of other benchmarks that the rule judges too, and what it looks at there."""

    @property
    def summary(self) -> str:
        """The first line of the page."""
        return self._text.partition("\n")[0]

    @property
    def _text(self) -> str:
        return inspect.getdoc(self.check) or ""

    @cached_property
    def sections(self) -> dict[str, str]:
        """The page's sections by heading; a missing one is missing here."""
        pattern = "|".join(map(re.escape, HEADINGS))
        parts = re.split(rf"^({pattern})\n", self._text, flags=re.MULTILINE)
        return {
            heading: inspect.cleandoc(body)
            for heading, body in zip(parts[1::2], parts[2::2], strict=True)
        }

    @cached_property
    def hint(self) -> str:
        """The first sentence of the last section, in one line."""
        text = " ".join(self.sections.get(HEADINGS[-1], "").split())
        return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """What the function takes beside the view: names of `NEEDS`."""
        return tuple(inspect.signature(self.check).parameters)[1:]

    def findings(
        self, view: Any, fallback_path: str, check: Check | None = None
    ) -> Iterator[Finding]:
        """What the rule finds in `view`, with `check` in place of its own function if given.

        Where something is missing that the rule needs, one unchecked finding.

        A rule that fails on somebody's file must not hide what the others find, so its failure
        is a finding too.
        """
        folder = None if check else view
        where, home = getattr(folder, "where", str), getattr(folder, "home", fallback_path)
        try:
            given = {} if check else {name: NEEDS[name].of(view) for name in self.needs}
            missing = [NEEDS[name].missing for name, value in given.items() if value is None]
            if missing:
                yield self._finding(unchecked(missing[0]), fallback_path)
                return
            problems = iter((check or self.check)(view, **given))
            for problem in islice(problems, MOST_FINDINGS):
                yield self._finding(problem, home if problem.path is None else where(problem.path))
            if next(problems, None) is not None:
                message = f"more than {MOST_FINDINGS} findings of this rule; the rest is not told"
                yield self._finding(Problem(message), fallback_path)
        except Exception as error:
            what = f"{type(error).__name__}: {str(error)[:200]}"
            message = f"the rule could not be applied to these files ({what})"
            hint = "Report this to fourmin's maintainers, with the files."
            yield self._finding(Problem(message, hint=hint), fallback_path)

    def _finding(self, problem: Problem, path: str) -> Finding:
        return Finding(
            code=self.code,
            name=self.name,
            severity=problem.severity or self.severity,
            path=path,
            line=problem.line,
            message=problem.message,
            hint=problem.hint or ("" if problem.unchecked else self.hint),
            unchecked=problem.unchecked,
        )


def rule(code: str, name: str, severity: str, scope: str) -> Callable[[Check], Rule]:
    """Make a rule of the decorated function, whose docstring is the rule's page."""
    return partial(Rule, code, name, severity, scope)
