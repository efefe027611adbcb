"""What docs/method.md promises, simulated by the script that writes its tables."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from itertools import combinations_with_replacement, product
from typing import Any

import pytest
from benchmark_scripts import load_script

from fourmin.report.gate import SLOWER
from fourmin.results.statistics import signed_rank_interval

method = load_script("method")
REFERENCES = list(method.references())
NAMES = [of.name for of in REFERENCES]


@pytest.mark.slow
@pytest.mark.parametrize("of", REFERENCES, ids=NAMES)
def test_the_gate_on_the_reference_runs(of: Any) -> None:
    """2,000 pairs; both looks together stay within what is promised."""
    at = method.gate_fails(of, 0.05, 2000)
    none = method.gate_fails(of, 0.0, 2000)
    assert at.at_once <= at.with_added <= 0.035
    assert none.at_once <= none.with_added <= 0.01
    assert method.gate_fails(of, 0.10, 2000).with_added >= 0.95


@pytest.mark.parametrize(
    "of",
    [pytest.param(of, marks=[pytest.mark.slow] * (of.name == "digits")) for of in REFERENCES],
    ids=NAMES,
)
def test_the_first_look_of_the_gate(of: Any) -> None:
    """Not simulated but counted: every set of five runs, as likely as drawing makes it."""
    likely = Counter(of.epochs)
    sets = {
        runs: math.factorial(5)
        * math.prod(
            (likely[value] / len(of.epochs)) ** times / math.factorial(times)
            for value, times in Counter(runs).items()
        )
        for runs in combinations_with_replacement(sorted(likely), 5)
    }
    assert sum(sets.values()) == pytest.approx(1)
    for share, most in ((0.05, 0.035), (0.0, 0.01)):
        failed = 0.0
        for (a, p), (b, q) in product(sets.items(), repeat=2):
            slower = tuple((1 + share) * value for value in b)
            # What is quicker at all cannot be found slower, and need not be computed.
            if math.prod(slower) > math.prod(a):
                failed += p * q * (method.looked(a, slower, of.every, 0.975).outcome == SLOWER)
        assert failed <= most


@pytest.mark.slow
@pytest.mark.parametrize("kind", method.NOISES)
def test_in_turns_no_noise_is_taken_for_a_difference(kind: str) -> None:
    assert method.ab_finds(kind, 0.0, 1000)[0] <= 0.06


@pytest.mark.parametrize("kind", method.NOISES)
def test_in_turns_a_true_difference_is_found(kind: str) -> None:
    found, _, pairs = method.ab_finds(kind, 0.0, 6)
    assert found <= 1 / 6
    assert 10 <= pairs <= 60
    assert method.ab_finds(kind, 0.15, 6)[0] == 1


def test_five_runs_of_digits_do_not_see_a_quarter() -> None:
    digits = next(of for of in REFERENCES if of.name == "digits")
    assert method.differs(digits, 0.25, 400) < 0.9
    assert method.differs(digits, 0.0, 400) < 0.08
    assert 0.9 < method.coverage(digits, 400) < 0.99


def test_a_trimmed_mean_is_moved_least_by_an_outlier() -> None:
    plain, trimmed, geometric = method.outliers(2000)
    assert trimmed < geometric < plain


@pytest.mark.parametrize(("count", "confidence"), [(6, 0.9), (10, 0.95), (10, 1 - 0.05 / 3)])
def test_the_signed_rank_interval_inverts_the_exact_test(count: int, confidence: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    values = [random.Random(i).gauss(0.3, 1) for i in range(count)]
    found = signed_rank_interval(values, confidence)
    assert found is not None
    centre, low, high = found
    assert low < centre < high

    def p(shift: float) -> float:
        moved = [value - shift for value in values]
        return float(stats.wilcoxon(moved, method="exact").pvalue)

    for edge, inside in ((low, 1e-9), (high, -1e-9)):
        assert p(edge + inside) > 1 - confidence >= p(edge - inside)
    walsh = [(a + b) / 2 for i, a in enumerate(values) for b in values[i:]]
    assert centre == pytest.approx(sorted(walsh)[len(walsh) // 2], abs=0.2)


def test_the_signed_rank_interval_covers_exactly_as_often_as_signs_say() -> None:
    """All 2^8 equally likely signs of eight sizes: how many intervals miss the true centre, 0."""
    sizes = [0.1, 0.5, 0.7, 1.1, 1.9, 2.3, 2.8, 4.1]
    missed = 0
    for signs in product((-1, 1), repeat=8):
        found = signed_rank_interval([s * v for s, v in zip(signs, sizes, strict=True)], 0.95)
        assert found is not None
        missed += not found[1] <= 0 <= found[2]
    assert missed / 2**8 == pytest.approx(0.0390625)  # P(W <= 3) = 5/256 on each side


def test_too_few_values_have_no_signed_rank_interval() -> None:
    assert signed_rank_interval([0.1, 0.2, 0.3, 0.4, 0.5], 0.95) is None
    assert signed_rank_interval([], 0.95) is None


def test_the_page_holds_what_was_simulated() -> None:
    page = method.PAGE.read_text()
    for name in ("outliers", "compare", "gate", "ab"):
        part = page.partition(f"<!-- {name}: by")[2].partition(f"<!-- end of {name}")[0]
        assert part.count("\n|") >= 3, name
    for of in REFERENCES:
        row = next(line for line in page.splitlines() if line.startswith(f"| {of.name} |"))
        cells = [cell.strip() for cell in row.split("|")[1:-1]]
        assert cells[1] == str(len(of.epochs))
        assert cells[2] == f"{of.spread:.1%}"
        assert 0.65 < float(cells[3].rstrip("%")) / 100 <= 0.97
        told = math.expm1(of.spread * math.sqrt(2 / 5) * (2.306004 + 1.396815))
        assert cells[6] == f"{told:.0%}"
    assert re.search(r"\| digits \| \d\.\d%, \d\.\d% \|", page)
