"""Every rule there is: those of the groups' modules. A code is never used again."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from fourmin.rules.foreign import logs, sets, training
from fourmin.rules.foreign.judge import Judge
from fourmin.rules.rule import GROUPS, Rule

MODULES = (
    "campaigns", "changes", "clock", "convergence", "data", "description", "evaluation",
    "eventlog", "hidden", "hyperparameters", "learning", "ledger", "package", "plausibility",
    "registration", "restarts", "runs", "schema", "seeds", "system",
)  # fmt: skip


JUDGES: tuple[Judge, ...] = tuple(
    value
    for module in (logs, training, sets)
    for value in vars(module).values()
    if isinstance(value, Judge)
)
"""How other benchmarks' results are judged, in the order of their modules."""


def _with_judges(rule: Rule) -> Rule:
    """The rule with the other sources that it judges."""
    foreign = tuple((judge.source, judge.text) for judge in JUDGES if judge.code == rule.code)
    return replace(rule, foreign=foreign)


def _place(rule: Rule) -> tuple[int, str]:
    return list(GROUPS).index(rule.code[:3]), rule.code


_OWN = [
    rule
    for module in MODULES
    for rule in vars(import_module(f"fourmin.rules.{module}")).values()
    if isinstance(rule, Rule)
]
RULES = tuple(_with_judges(rule) for rule in sorted(_OWN, key=_place))
"""All rules, by group and code, with what they judge."""
