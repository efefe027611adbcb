"""What an attack is: something a cheat does to honest files, and the rules that find it.

A module of attacks makes them with `attack` (found) and `not_preventable` (passes, and
docs/security.md says so in the words given). Each acts on the copy of a world:

- `campaign`: the folder of one closed campaign of five runs.
- `submissions`: a root of submissions, see `worlds.make_submissions`.
- `repository`: a git repository with such a root on its base branch `main`, see
  `worlds.make_repository`; the branch `change` is checked out, and checked against it.
- `empty`: an empty folder, for campaigns that are made up as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forger import forge
from typer.testing import CliRunner

from fourmin.cli.main import app

Act = Callable[[Path], object]
WORLDS = ("campaign", "submissions", "repository", "empty")


@dataclass(frozen=True)
class Attack:
    """`codes` must be among the errors found; none where the attack passes."""

    name: str
    world: str
    act: Act
    codes: frozenset[str]
    listed: str = ""
    """How docs/security.md names what cannot be found."""
    innocent: tuple[str, ...] = ()
    """Campaigns, by path in the world, that stay valid."""


ATTACKS: list[Attack] = []


def validate(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON of `fourmin validate`, in this process."""
    words = ["validate", "--format", "json", *map(str, arguments)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


def errors(said: dict[str, Any]) -> set[str]:
    """The codes of errors that nobody waived."""
    return {f["code"] for f in said["findings"] if f["severity"] == "error" and not f["waived"]}


def attack(world: str, *codes: str, innocent: Sequence[str] = ()) -> Callable[[Act], Act]:
    """Of a function: it is an attack that is found, by these rules at least."""

    def add(act: Act) -> Act:
        name = act.__name__.strip("_").replace("_", " ")
        ATTACKS.append(Attack(name, world, act, frozenset(codes), innocent=tuple(innocent)))
        return act

    return add


def not_preventable(world: str, listed: str) -> Callable[[Act], Act]:
    """Of a function: it is an attack that no file shows."""

    def add(act: Act) -> Act:
        name = act.__name__.strip("_").replace("_", " ")
        ATTACKS.append(Attack(name, world, act, frozenset(), listed))
        return act

    return add


def edited(
    name: str, code: str, *edits: dict[str, Any], world: str = "campaign", keep: Sequence[str] = ()
) -> None:
    """An attack that is a few edits, with everything but `keep` made anew."""

    def act(root: Path) -> None:
        forge(root, edits, keep=keep)

    ATTACKS.append(Attack(name, world, act, frozenset({code})))
