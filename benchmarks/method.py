"""What the statistics of results do, simulated: the tables of docs/method.md.

    python benchmarks/method.py            # writes the tables, about ten minutes
    python benchmarks/method.py --pairs 200    # prints them, from fewer simulations

Everything is decided by the functions that `fourmin report` and `fourmin bench ab` use, on runs
that are drawn from each benchmark's reference runs (rules/1.0/rcp), which are epochs to the target:
the time of a run is their number at a steady rate. Chance is seeded.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from fourmin.bench.ab import CANNOT_TELL, EQUIVALENT, in_turns
from fourmin.report.gate import EPOCHS, FIRST_LOOK, PLANNED_LOOK, SLOWER, Judged, judge_values
from fourmin.results.power import share_found
from fourmin.results.scoring import score
from fourmin.results.statistics import (
    geometric_mean,
    log_interval,
    mean,
    sample_deviation,
    welch_test,
)

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/method.md"
PAIRS = 2000
RUNS = 5
MARGIN = 0.05
NOISES = ("normal", "t3", "spiky", "drifting")
QUANTITIES = ("time", "rate", "epochs")


@dataclass(frozen=True)
class Reference:
    """Reference runs of a benchmark: epochs to the target, and epochs between evaluations."""

    name: str
    epochs: tuple[int, ...]
    every: int

    @property
    def spread(self) -> float:
        """Standard deviation of the log of a run."""
        return sample_deviation([math.log(value) for value in self.epochs])


def references() -> Iterator[Reference]:
    """Of each benchmark one; of ResNet-50's batches that in the middle.

    Runs that all need the same epochs, as those of fractals-resnet50 do, say nothing of chance.
    """
    for path in sorted((ROOT / "rules/1.0/rcp").glob("*.json")):
        document = json.loads(path.read_text())
        points = document["rounds"][document["current"]]
        point = points[len(points) // 2]
        if len(set(point["epochs"])) == 1:
            continue
        name = path.stem if len(points) == 1 else f"{path.stem} at {point['global_batch_size']:,}"
        yield Reference(name, tuple(point["epochs"]), 2 if path.stem == "digits" else 1)


def drawn(of: Reference, number: int, chance: random.Random, share: float = 0.0) -> list[float]:
    """Runs that take `share` more than the reference's."""
    return [(1 + share) * chance.choice(of.epochs) for _ in range(number)]


def coverage(of: Reference, pairs: int) -> float:
    """How often the 95% interval of five runs holds the true geometric mean."""
    chance = random.Random(f"coverage {of}")
    true = geometric_mean(of.epochs)
    held = 0
    for _ in range(pairs):
        low, high = log_interval(drawn(of, RUNS, chance)) or (0.0, 0.0)
        held += low <= true * (1 + 1e-12) and true * (1 - 1e-12) <= high
    return held / pairs


def differs(of: Reference, share: float, pairs: int) -> float:
    """How often `--compare` says that five runs and five that take `share` more differ, at 5%."""
    chance = random.Random(f"differs {share} {of}")
    found = 0
    for _ in range(pairs):
        sides = drawn(of, RUNS, chance), drawn(of, RUNS, chance, share)
        test = welch_test(*([math.log(value) for value in side] for side in sides))
        found += test is not None and test.p < 0.05
    return found / pairs


@cache
def looked(a: tuple[float, ...], b: tuple[float, ...], every: int, sure: float) -> Judged:
    return judge_values(EPOCHS, MARGIN, (a, every / min(a)), (b, every / min(b)), sure)


@dataclass(frozen=True)
class GateErrors:
    """How often the gate fails at its first look, and at both; the runs that it asked for."""

    at_once: float
    with_added: float
    asked_for: int | None


def gate_fails(of: Reference, share: float, pairs: int) -> GateErrors:
    """Five runs and five that truly take `share` more, and as many more as the gate asks for."""
    chance = random.Random(f"gate {share} {of}")

    def look(a: Sequence[float], b: Sequence[float], sure: float) -> Judged:
        return looked(tuple(sorted(a)), tuple(sorted(b)), of.every, sure)

    first, later, asked = 0, 0, []
    for _ in range(pairs):
        a, b = drawn(of, RUNS, chance), drawn(of, RUNS, chance, share)
        found = look(a, b, FIRST_LOOK)
        first += found.outcome == SLOWER
        if found.runs_to_tell is not None:
            asked.append(found.runs_to_tell)
            more = found.runs_to_tell - RUNS
            a, b = [*a, *drawn(of, more, chance)], [*b, *drawn(of, more, chance, share)]
            later += look(a, b, PLANNED_LOOK).outcome == SLOWER
    return GateErrors(first / pairs, (first + later) / pairs, int(median(asked)) if asked else None)


def looks_again(of: Reference, pairs: int) -> float:
    """How often a true 5% fails if five runs more are made and looked at, ten times at most."""
    chance = random.Random(f"again {of}")
    failed = 0
    for _ in range(pairs):
        a: list[float] = []
        b: list[float] = []
        for _ in range(11):
            a, b = [*a, *drawn(of, RUNS, chance)], [*b, *drawn(of, RUNS, chance, MARGIN)]
            logs = [[math.log(value) for value in side] for side in (b, a)]
            limit = math.log1p(MARGIN)
            test = welch_test([value - limit for value in logs[0]], logs[1])
            if test is not None and test.t > 0 and test.p / 2 < 1 - FIRST_LOOK:
                failed += 1
                break
    return failed / pairs


def outliers(pairs: int) -> tuple[float, float, float]:
    """Standard deviation of the plain mean, the trimmed mean and the geometric mean of five runs
    with a spread of 3%, one in twenty of which takes twice as long; shares of the usual run.
    """
    chance = random.Random("outliers")
    made: list[list[float]] = [[], [], []]
    for _ in range(pairs):
        runs = [
            math.exp(chance.gauss(0, 0.03)) * (2 if chance.random() < 0.05 else 1)
            for _ in range(RUNS)
        ]
        trimmed = score(runs).minutes
        for place, value in enumerate((mean(runs), trimmed, geometric_mean(runs))):
            made[place].append(value or math.nan)
    plain, trimmed_mean, geometric = map(sample_deviation, made)
    return plain, trimmed_mean, geometric


def noise(kind: str, chance: random.Random, spread: float = 0.03) -> Callable[[], float]:
    """Factors of one measurement after the other."""
    taken = 0

    def one() -> float:
        nonlocal taken
        taken += 1
        usual = chance.gauss(0, spread)
        if kind == "t3":
            usual /= math.sqrt(sum(chance.gauss(0, 1) ** 2 for _ in range(3)) / 3)
        if kind == "spiky" and chance.random() < 0.1:
            usual += chance.expovariate(1 / 0.3)
        if kind == "drifting":  # warmer by the minute, and a wave of an hour
            usual += 0.005 * taken + 0.1 * math.sin(taken / 10)
        return math.exp(usual)

    return one


def ab_finds(kind: str, share: float, number: int) -> tuple[float, float, float]:
    """How often `bench ab` finds a difference in any of three quantities where B takes `share`
    more, how often it says of all that they are equivalent, and how many pairs it took.
    """
    chance = random.Random(f"ab {kind} {share}")
    found = equal = taken = 0
    for _ in range(number):
        noises = {of: noise(kind, chance) for of in QUANTITIES}

        def measure(side: str, _seed: int, noises: dict[str, Callable[[], float]] = noises):  # noqa: ANN202
            factor = 1 + share if side == "b" else 1
            return {of: factor * one() for of, one in noises.items()}

        pairs, judged, _ = in_turns(measure, QUANTITIES, MARGIN, chance, lambda n: n >= 60)
        taken += len(pairs)
        found += any(one.outcome not in (CANNOT_TELL, EQUIVALENT) for one in judged)
        equal += all(one.outcome == EQUIVALENT for one in judged)
    return found / number, equal / number, taken / number


def tables(pairs: int) -> dict[str, str]:
    """The page's parts, by name."""
    say = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    every = list(references())
    parts = {}
    rows = []
    for of in every:
        say(f"compare, {of.name}")
        detectable = share_found(of.spread * math.sqrt(2 / RUNS), 2 * RUNS - 2, 0.05)
        shares = [differs(of, share, pairs) for share in (0.0, 0.10, detectable)]
        rows.append(
            [of.name, len(of.epochs), f"{of.spread:.1%}", f"{coverage(of, pairs):.1%}",
             f"{shares[0]:.1%}", f"{shares[1]:.0%}", f"{detectable:.0%}", f"{shares[2]:.0%}"]
        )  # fmt: skip
    head = [
        "reference runs", "of them", "spread of log time", "95% interval holds the mean",
        "differ, where nothing does", "10% is found", "smallest detectable", "that is found",
    ]  # fmt: skip
    parts["compare"] = table(head, rows)
    rows = []
    for of in every:
        say(f"gate, {of.name}")
        none, at, twice = (gate_fails(of, share, pairs) for share in (0.0, MARGIN, 2 * MARGIN))
        rows.append(
            [of.name, f"{none.at_once:.1%}, {none.with_added:.1%}",
             f"{at.at_once:.1%}, {at.with_added:.1%}",
             f"{twice.at_once:.0%}, {twice.with_added:.1%}", twice.asked_for or "-",
             f"{looks_again(of, pairs):.1%}"]
        )  # fmt: skip
    head = ["reference runs", "true 0%", "true 5%", "true 10%", "runs asked for (median, at 10%)",
            "true 5%, looked at ten times"]  # fmt: skip
    parts["gate"] = table(head, rows)
    rows = []
    for kind in NOISES:
        say(f"ab, {kind}")
        none = ab_finds(kind, 0.0, pairs // 2)
        half, slower = (ab_finds(kind, share, pairs // 8) for share in (0.02, 0.05))
        rows.append(
            [kind, f"{none[0]:.1%}", f"{none[1]:.0%}", f"{half[0]:.0%}", f"{slower[0]:.1%}",
             f"{none[2]:.0f}"]
        )  # fmt: skip
    head = ["noise", "found, where nothing differs", "equivalent", "2% found", "5% found", "pairs"]
    parts["ab"] = table(head, rows)
    names = ["mean", "mean without the fastest and the slowest", "geometric mean"]
    shares = [f"{value:.1%}" for value in outliers(10 * pairs)]
    parts["outliers"] = table(names, [shares])
    return parts


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, help="print from so many, and write nothing")
    pairs = parser.parse_args().pairs
    page = PAGE.read_text()
    for name, made in tables(pairs or PAIRS).items():
        begin, end = f"<!-- {name}: by benchmarks/method.py -->\n\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            sys.exit(f"{PAGE.name} needs {begin.strip()} and {end.strip()}")
        page = f"{before}{begin}{made}\n{end}{after}"
        print(made)
    if not pairs:
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
