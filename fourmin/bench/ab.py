"""`fourmin bench ab`: two environments, presets or settings in turns, and whether they differ.

A pair is one measurement of each side, right after each other, in an order that chance decides so
that of two pairs each order has one: what drifts slowly, and what the first of two meets, cancels.
It stops by the width of the intervals alone, or at a limit: who stops once a difference shows finds
one too often.
"""

from __future__ import annotations

import json
import math
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

from fourmin.base.errors import NOT_CONVERGED, FourminError, list_names
from fourmin.base.mishaps import told
from fourmin.report.collect import collect_all
from fourmin.report.gate import EPOCHS, RATE, TIME, run_values
from fourmin.results.power import POWER
from fourmin.results.statistics import geometric_mean, lower_quartile, signed_rank_interval

FEWEST_PAIRS = 10
LEVEL = 0.035
"""Of all quantities together at one look. Who ends once an interval is narrow meets those that are
so by chance, and errs in 5% of cases: docs/method.md."""
SLOWER, FASTER, EQUIVALENT, CANNOT_TELL = "b-slower", "b-faster", "equivalent", "cannot-tell"
ENDS = {"width": "the intervals are narrow enough", "limit": "the limit was reached"}

Values = Mapping[str, float]
"""What one measurement took, by quantity: minutes, seconds an image (or milliseconds), epochs."""
Pair = Mapping[str, Any]
"""`seed`, which side was `first`, and what each took: `a` and `b`."""


@dataclass(frozen=True)
class Judged:
    """One quantity over all pairs: the share by which B takes longer (Hodges and Lehmann's
    estimate), its interval, and the smallest share that would be found nine times in ten.

    `equivalent` is whether the whole interval is within the margin.
    """

    of: str
    outcome: str
    pairs: int
    share: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    detectable: float = math.inf
    equivalent: bool = False

    @property
    def half_width(self) -> float:
        """Half of the interval of the log of the ratio."""
        known = math.isfinite(self.high)
        return (math.log1p(self.high) - math.log1p(self.low)) / 2 if known else math.inf

    def to_json(self) -> dict[str, Any]:
        known = math.isfinite(self.high)
        return {
            name: value if known or not isinstance(value, float) else None
            for name, value in asdict(self).items()
        }


def said(one: Judged, margin: float) -> str:
    """What a quantity shows, in words."""
    if one.half_width == math.inf:
        return "cannot tell: a run missed the target, or too few pairs have it"
    within, text = f"equivalent within {margin:.2%}", f"{one.share:+.2%}"
    if one.outcome in (SLOWER, FASTER):
        within = f", {within}" if one.equivalent else ""
        text = f"B {one.outcome[2:]} by {abs(one.share):.2%} [{one.low:+.2%}, {one.high:+.2%}]"
        return text + within
    text = f"B takes {text} [{one.low:+.2%}, {one.high:+.2%}]"
    if one.outcome == EQUIVALENT:
        return f"{within}: {text}"
    return f"cannot tell: {text}; {one.detectable:.2%} could have been seen"


def to_text(found: Mapping[str, Any], judged: Sequence[Judged]) -> str:
    """What `measure` found, for people."""
    sides = (
        f"{name.upper()}: {side['options'] or 'defaults'} (fourmin {side['fourmin']})"
        for name, side in found["sides"].items()
    )
    pairs = f"{len(found['pairs'])} pairs of `{found['what']}`; {ENDS[found['stopped']]}"
    told = (f"{one.of}: {said(one, found['margin_percent'] / 100)}" for one in judged)
    return "\n".join([*sides, pairs, *told]) + "\n"


def judge(of: str, pairs: Sequence[Pair], margin: float, quantities: int) -> Judged:
    """What the pairs say of a quantity, corrected for so many; nothing where a run misses it."""
    level = LEVEL / quantities
    known = all(of in pair[side] for pair in pairs for side in "ab")
    logs = [math.log(pair["b"][of] / pair["a"][of]) for pair in pairs] if known else []
    found = signed_rank_interval(logs, 1 - level)
    if found is None:
        return Judged(of, CANNOT_TELL, len(logs))
    centre, low, high = found
    equivalent = max(-low, high) <= math.log1p(margin)
    same = EQUIVALENT if equivalent else CANNOT_TELL
    normal = NormalDist().inv_cdf
    detectable = (high - low) / 2 * (1 + normal(POWER) / normal(1 - level / 2))
    share, least, most, seen = map(math.expm1, (centre, low, high, detectable))
    outcome = SLOWER if low > 0 else FASTER if high < 0 else same
    return Judged(of, outcome, len(logs), share, least, most, seen, equivalent)


def in_turns(
    take: Callable[[str, int], Values],
    quantities: Sequence[str],
    margin: float,
    chance: random.Random,
    over: Callable[[int], bool],
    say: Callable[[str], None] = lambda _line: None,
) -> tuple[list[Pair], list[Judged], str]:
    """Pairs until every interval is narrower than the margin, or `over` says so of their number;
    then what they show, and why it ended. `take` measures a side, `a` or `b`, with a seed.
    """
    pairs: list[Pair] = []
    for order in _orders(chance):
        seed = chance.randrange(1, 2**31)
        values = {side: take(side, seed) for side in order}
        if len({value.get("measured") for value in values.values()}) > 1:
            raise FourminError("the two sides do not measure the same", "", "the same sizes, peers")
        pairs.append({"seed": seed, "first": order[0], **values})
        if len(pairs) % 2 or len(pairs) < FEWEST_PAIRS:
            continue
        judged = [judge(of, pairs, margin, len(quantities)) for of in quantities]
        # Nothing is said of where the intervals lie, lest somebody stop there.
        widths = ", ".join(f"{one.of} {one.half_width:.2%}" for one in judged)
        say(f"{len(pairs)} pairs, intervals to both sides: {widths}")
        if all(one.half_width <= math.log1p(margin) / 2 for one in judged):
            return pairs, judged, "width"
        if over(len(pairs)):
            return pairs, judged, "limit"
    raise AssertionError


def _orders(chance: random.Random) -> Iterator[tuple[str, str]]:
    while True:
        first, second = chance.sample("ab", 2)
        yield from ((first, second), (second, first))


def measure(
    what: str,
    options: tuple[str, str],
    pythons: Sequence[str],
    margin: float,
    minutes: float,
    say: Callable[[str], None],
) -> tuple[dict[str, Any], list[Judged]]:
    """Measure both sides in turns, for at least `FEWEST_PAIRS` pairs: plain JSON types with every
    measurement, and what they show.

    `options` are A's and B's as on a command line, `pythons` the interpreters: none for this one,
    one for both, or one each; no pair starts after so many `minutes`. Raises FourminError for what
    cannot be measured.
    """
    if what not in KINDS or len(pythons) > 2:
        known = f"--what: {list_names([*KINDS])}; --python at most twice"
        raise FourminError(f"cannot measure {what} so", next_step=known)
    with told("the options of a side make no command line", "quote as in a shell", ValueError):
        words = dict(zip("ab", map(shlex.split, options), strict=True))
    commands = dict(zip("ab", [*pythons, *pythons] or [sys.executable] * 2, strict=False))
    version = "import fourmin; print(fourmin.__version__, 'in', fourmin.__path__[0])"
    sides = {
        side: {"options": given, "python": python, "fourmin": _output([python, "-c", version])}
        for (side, python), given in zip(commands.items(), options, strict=True)
    }
    measured, quantities = KINDS[what]
    end = time.monotonic() + 60 * minutes
    pairs, judged, stopped = in_turns(
        lambda side, seed: measured(commands[side], words[side], seed),
        quantities, margin, random.Random(), lambda _pairs: time.monotonic() > end, say,
    )  # fmt: skip
    found = {
        "schema_version": 1,
        "kind": "bench-ab",
        "what": what,
        "margin_percent": 100 * margin,
        "sides": sides,
        "pairs": pairs,
        "stopped": stopped,
        "judged": [one.to_json() for one in judged],
    }
    return found, judged


Measured = Callable[[str, Sequence[str], int], Values]


def _run(python: str, options: Sequence[str], seed: int) -> Values:
    """One practice run; a run that misses the target has a rate alone."""
    with tempfile.TemporaryDirectory(prefix="fourmin-ab-") as folder:
        place = ["--results-dir", folder, "--practice", "--runs", "1", "--seed", str(seed)]
        command = [python, "-m", "fourmin", "run", *options, *place, "--quiet"]
        _output(command, (0, NOT_CONVERGED))
        (result,) = collect_all([Path(folder)])
        return run_values(result.runs[0])


def _benchmark(
    name: str, rows: str, per: Callable[[Any], float], *first: str
) -> tuple[Measured, tuple[str, ...]]:
    """The geometric mean of all that a microbenchmark measures, less of which is faster; `per`
    is 0 for a row without a figure, and `first` stands before a side's options.
    """

    def one(python: str, options: Sequence[str], _seed: int) -> Values:
        told = _output([python, "-m", "fourmin", "bench", name, *first, *options, "--json"])
        found = [value for row in json.loads(told)[rows] if (value := per(row)) > 0]
        if not found:
            raise FourminError("nothing could be measured", told[-1000:])
        return {RATE: geometric_mean(found), "measured": len(found)}

    return one, (RATE,)


def _step(row: Any) -> float:
    return lower_quartile(row["seconds"] or [0]) / int(row["batch_size"])


KINDS: Mapping[str, tuple[Measured, tuple[str, ...]]] = {
    "run": (_run, (TIME, RATE, EPOCHS)),
    # Only the step of a run, which is the eager one without a GPU. To start takes as long as 100.
    "step": _benchmark("step", "results", _step, "--peers", "fast", "--repeats", "100"),
    "data": _benchmark("data", "results", lambda row: 1 / (row["images_per_second"] or math.inf)),
    "allreduce": _benchmark("allreduce", "rows", lambda row: float(row["milliseconds"])),
}
"""What can be measured of a side, and the quantities that come of it."""


def _output(command: Sequence[str], codes: Sequence[int] = (0,)) -> str:
    """What a command of a side prints. Raises FourminError where it fails."""
    # A folder named like the package, where the user stands, must not win.
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    quiet = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": False}
    with told(f"cannot start {command[0]}"):
        done = subprocess.run(command, env=environment, **quiet)  # type: ignore[call-overload]
    if done.returncode not in codes:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        said = f"{shlex.join(command)} ended with {done.returncode}"
        raise FourminError(said, last, "try it by itself")
    return str(done.stdout).strip()
