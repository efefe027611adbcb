"""Which segments a challenge asks for, and how often it finds a false one."""

from __future__ import annotations

import random
from math import comb

import pytest

from fourmin.ledger.challenge import draw

PLAN, HEAD = "a" * 64, "b" * 64
RUNS, EPOCHS = 5, 41


def found(spliced: int, chance: random.Random) -> bool:
    """Whether a challenge asks for a segment that a forger chose in one of five long runs. He knows
    that the last one is asked for."""
    nonce = f"{chance.getrandbits(256):064x}"
    asked = draw(PLAN, HEAD, nonce, dict.fromkeys(range(1, RUNS + 1), (EPOCHS, False)))
    false = {str(run): chance.sample(range(1, EPOCHS), spliced) for run in range(1, RUNS + 1)}
    return any(set(false[run]) & set(asked[run]) for run in asked)


@pytest.mark.parametrize("spliced", [1, (EPOCHS - 1) // 2])
def test_2000_challenges_agree_with_the_formula(spliced: int) -> None:
    """Of N segments c are drawn: k false ones are missed with C(N-k, c) / C(N, c) in each run."""
    others = EPOCHS - 1
    drawn = -(-others * 9 // 20)
    missed = comb(others - spliced, drawn) / comb(others, drawn)
    expected = 1 - missed**RUNS
    chance = random.Random(20181)
    rate = sum(found(spliced, chance) for _ in range(2000)) / 2000
    assert abs(rate - expected) <= 0.03
    assert rate >= 0.9


def test_what_is_asked_for() -> None:
    lengths = {1: (10, True), 2: (41, False), 3: (1, False), 4: (2, False)}
    asked = draw(PLAN, HEAD, "c" * 64, lengths)
    assert asked["1"] == list(range(1, 11)), "all of a short run"
    assert (asked["2"][-1], len(asked["2"])) == (41, 19), "the last and 45% of the others"
    assert asked["2"] == sorted(set(asked["2"]))
    assert (asked["3"], asked["4"]) == ([1], [1, 2])
    assert draw(PLAN, HEAD, "c" * 64, lengths) == asked


@pytest.mark.parametrize(
    "other", [("d" * 64, HEAD, "c" * 64), (PLAN, "d" * 64, "c" * 64), (PLAN, HEAD, "d" * 64)]
)
def test_plan_ledger_and_nonce_decide(other: tuple[str, str, str]) -> None:
    lengths = dict.fromkeys(range(1, 6), (41, False))
    assert draw(*other, lengths) != draw(PLAN, HEAD, "c" * 64, lengths)
