"""The rules' pages for the page: the words of `fourmin rules CODE`, as paragraphs."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fourmin.report.model import Comparison
from fourmin.rules.registry import RULES
from fourmin.rules.rule import HEADINGS, Rule


@dataclass(frozen=True)
class Paragraph:
    """Text with code marked: pieces alternate between words and code. `block` is all code."""

    pieces: tuple[str, ...]
    block: bool = False


@dataclass(frozen=True)
class RuleText:
    """A rule with how often it was broken."""

    rule: Rule
    findings: int
    summary: Paragraph
    sections: tuple[tuple[str, tuple[Paragraph, ...]], ...]


def rule_texts(comparison: Comparison) -> list[RuleText]:
    """Every rule, so that a reader sees too what was checked and held."""
    counted = Counter(f.code for result in comparison.every for f in result.verdict.findings)
    return [
        RuleText(rule, counted[rule.code], _paragraph(rule.summary), tuple(_sections(rule)))
        for rule in RULES
    ]


def _sections(rule: Rule) -> Iterator[tuple[str, tuple[Paragraph, ...]]]:
    for heading in HEADINGS:
        text = rule.sections.get(heading, "")
        if text:
            yield heading, tuple(paragraphs(text))
    for source, text in rule.foreign:
        yield f"In files of {source}", tuple(paragraphs(text))


def paragraphs(text: str) -> Iterator[Paragraph]:
    """The paragraphs of a docstring; indented ones are code and keep their lines."""
    for part in re.split(r"\n\s*\n", text):
        if part.startswith(("    ", "\t")):
            yield Paragraph((inspect.cleandoc(part),), block=True)
        elif part.strip():
            yield _paragraph(part)


def _paragraph(text: str) -> Paragraph:
    return Paragraph(tuple(" ".join(text.split()).split("`")))
