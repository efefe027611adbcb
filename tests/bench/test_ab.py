"""`fourmin bench ab`: pairs in turns, when they end, what they show; and two real sides."""

from __future__ import annotations

import json
import math
import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tree_copy import TreeCopy
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.bench import ab
from fourmin.cli.main import app


def always(_pairs: int) -> bool:
    return True


def never(_pairs: int) -> bool:
    return False


def noisy(share: float, spread: float, chance: random.Random) -> Any:
    def take(side: str, _seed: int) -> dict[str, float]:
        usual = math.exp(chance.gauss(0, spread))
        return {"rate": usual * (1 + share if side == "b" else 1)}

    return take


def test_each_order_comes_as_often_and_both_sides_of_a_pair_have_its_seed() -> None:
    asked: list[tuple[str, int]] = []

    def take(side: str, seed: int) -> dict[str, float]:
        asked.append((side, seed))
        return {"rate": 1.0 + len(asked) % 7}

    pairs, _, ended = ab.in_turns(take, ["rate"], 0.001, random.Random(4), lambda n: n >= 20)
    assert (len(pairs), ended) == (20, "limit")
    assert Counter(pair["first"] for pair in pairs) == {"a": 10, "b": 10}
    assert len({pair["first"] for pair in pairs[::2]}) == 2  # which is first is not always the same
    for (one, seed), (other, same), pair in zip(asked[::2], asked[1::2], pairs, strict=True):
        assert {one, other} == {"a", "b"}
        assert seed == same == pair["seed"]
    assert len({pair["seed"] for pair in pairs}) == 20


@pytest.mark.parametrize(
    ("share", "outcome"),
    [(0.1, ab.SLOWER), (-0.1, ab.FASTER), (0.0, ab.EQUIVALENT)],
)
def test_outcomes(share: float, outcome: str) -> None:
    take = noisy(share, 0.02, random.Random(1))
    _, (found,), ended = ab.in_turns(take, ["rate"], 0.05, random.Random(1), never)
    assert (found.outcome, ended) == (outcome, "width")
    assert found.share == pytest.approx(share, abs=0.02)
    assert found.low <= found.share <= found.high
    assert found.half_width <= math.log1p(0.05) / 2
    text = ab.said(found, 0.05)
    assert text.startswith({ab.SLOWER: "B slower by", ab.FASTER: "B faster by"}.get(
        outcome, "equivalent within 5.00%"))  # fmt: skip


def test_what_cannot_be_told_says_what_could_have_been_seen() -> None:
    take = noisy(0.0, 0.3, random.Random(5))
    _, (found,), ended = ab.in_turns(take, ["rate"], 0.01, random.Random(1), always)
    assert (found.outcome, found.pairs, ended) == (ab.CANNOT_TELL, 10, "limit")
    assert f"{found.detectable:.2%} could have been seen" in ab.said(found, 0.01)
    assert found.detectable > math.expm1(found.half_width)


def test_a_difference_does_not_end_it() -> None:
    """One that shows at once is measured on until its interval is narrow."""
    take = noisy(1.0, 0.3, random.Random(6))
    pairs, (found,), _ = ab.in_turns(take, ["rate"], 0.2, random.Random(1), never)
    assert found.outcome == ab.SLOWER
    assert len(pairs) > 20
    early = ab.judge("rate", pairs[:10], 0.2, 1)
    assert early.outcome == ab.SLOWER


def test_a_missed_target_leaves_the_rate_alone() -> None:
    pairs = [{"a": {"rate": 1.0, "epochs": 4.0}, "b": {"rate": 1.0, "epochs": 4.0}}] * 10
    assert ab.judge("epochs", pairs, 0.05, 3).outcome == ab.EQUIVALENT
    missed = [*pairs, {"a": {"rate": 1.0}, "b": {"rate": 1.0, "epochs": 4.0}}]
    found = ab.judge("epochs", missed, 0.05, 3)
    assert found.outcome == ab.CANNOT_TELL
    assert "missed the target" in ab.said(found, 0.05)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["share"] is None
    assert ab.judge("rate", missed, 0.05, 3).outcome == ab.EQUIVALENT


def test_more_quantities_need_wider_intervals() -> None:
    chance = random.Random(2)
    pairs = [{"a": {"rate": 1.0}, "b": {"rate": math.exp(chance.gauss(0, 1))}} for _ in range(20)]
    one, three = (ab.judge("rate", pairs, 0.05, number) for number in (1, 3))
    assert three.low < one.low < one.high < three.high


def test_sides_that_measure_different_things_are_refused() -> None:
    def take(side: str, _seed: int) -> dict[str, float]:
        return {"rate": 1.0, "measured": 1 if side == "a" else 2}

    with pytest.raises(FourminError, match="do not measure the same"):
        ab.in_turns(take, ["rate"], 0.05, random.Random(1), always)


STAND_IN = """\
#!{python}
import json, sys
if sys.argv[1] == "-c":
    print("0.0 in here")
elif "--fail" in sys.argv:
    sys.exit("out of order")
else:
    slower = float(sys.argv[sys.argv.index("--slower") + 1])
    rows = [{{"peer": "fast", "batch_size": 4, "seconds": [slower * s for s in (4, 8, 8, 8)]}}]
    print(json.dumps({{"results": rows, "arguments": sys.argv}}))
"""


def test_the_command_asks_each_interpreter_with_its_options(tmp_path: Path) -> None:
    paths = []
    for name in ("one", "two"):
        paths.append(tmp_path / name)
        paths[-1].write_text(STAND_IN.format(python=sys.executable))
        paths[-1].chmod(0o755)
    sides = ["--what", "step", "--python", str(paths[0]), "--python", str(paths[1])]
    done = CliRunner().invoke(
        app, ["bench", "ab", "--a", "--slower 1", "--b", "--slower 1.25", *sides, "--json"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [found["sides"][side]["python"] for side in "ab"] == [str(path) for path in paths]
    assert (len(found["pairs"]), found["stopped"]) == (10, "width")
    # A quarter of the steps take 4 s: the lower quartile lies between the first and the second.
    assert all(pair["a"]["rate"] == pytest.approx(7 / 4) for pair in found["pairs"])
    (judged,) = found["judged"]
    assert (judged["outcome"], judged["share"]) == (ab.SLOWER, pytest.approx(0.25))
    done = CliRunner().invoke(app, ["bench", "ab", "--a", "--slower 1", "--b", "--fail", *sides])
    assert isinstance(done.exception, FourminError)
    assert "out of order" in done.exception.why
    nonsense = (["--what", "nothing"], ["--python", "no-such-python"], ["--python", "x"] * 3)
    for wrong in (*nonsense, ["--b", "--peers 'fast"]):
        done = CliRunner().invoke(app, ["bench", "ab", *wrong])
        assert isinstance(done.exception, FourminError)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_step_slowed_by_a_twentieth_is_found(tmp_path: Path) -> None:
    """In a copy of the tree, on this machine's processors, within ten minutes."""
    tree = TreeCopy(tmp_path / "tree")
    step = "fourmin/training/step.py"
    tree.replace(step, "        self._reducer.clear()\n        loss_sum",
                 "        import time\n        began = time.perf_counter()\n"
                 "        self._reducer.clear()\n        loss_sum")  # fmt: skip
    tree.replace(step, "        self._update.launch()\n        return loss_sum, exposed",
                 "        self._update.launch()\n"
                 "        time.sleep(0.05 * (time.perf_counter() - began))\n"
                 "        return loss_sum, exposed")  # fmt: skip
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tree.root} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert os.access(python, os.X_OK)
    options = "--device cpu"
    found, (judged,) = ab.measure(
        "step", (options, options), [sys.executable, str(python)], 0.03, 9, print
    )
    assert str(tree.root) in found["sides"]["b"]["fourmin"]
    assert judged.outcome == ab.SLOWER, ab.to_text(found, [judged])
    assert judged.low < 0.05 < judged.high


@pytest.mark.slow
def test_two_settings_of_real_runs(tmp_path: Path) -> None:
    """Practice runs of digits in turns: their own time, rate and epochs, paired by seed."""
    side = ("--preset digits", "--preset digits")
    pairs = []
    measured, quantities = ab.KINDS["run"]
    for seed in (11, 12):
        a, b = (measured(sys.executable, options.split(), seed) for options in side)
        pairs.append((a, b))
        assert set(a) <= set(quantities)
        assert a.get("epochs") == b.get("epochs")  # one seed, one course
        assert a["rate"] > 0
