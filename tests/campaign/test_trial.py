"""Nodes that are tried by themselves before anything is registered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from in_process import fourmin_run

from fourmin.base.errors import FourminError
from fourmin.campaign import trial
from fourmin.campaign.trial import slow_nodes, told, try_nodes
from fourmin.launch.preflight import Clock
from fourmin.launch.torchrun import TorchrunLauncher
from fourmin.launch.trial import Trial
from fourmin.recipe.presets import load_preset

CONFIGURATION = load_preset("digits").with_overrides({"nodes": 3})


def nodes(*times: tuple[float, float]) -> list[Trial]:
    return [Trial(f"n{i}", (), step, reduce) for i, (step, reduce) in enumerate(times, start=1)]


@pytest.mark.parametrize(
    ("times", "slow"),
    [
        ([(10, 1), (10, 1), (10, 1), (11, 1.1)], []),  # ten percent is not more than ten
        ([(10, 1), (10, 1), (10, 1), (11.1, 1)], ["n4"]),
        ([(10, 1), (10, 1), (10, 1), (10, 1.2)], ["n4"]),
        ([(10, 0), (10, 0), (10, 0)], []),  # one worker a node reduces nothing
        ([(10, 1), (20, 1), (30, 1)], ["n3"]),  # of the median, not of the fastest
        ([(5, 1), (10, 1), (10, 1)], []),  # a fast one is welcome
    ],
)
def test_who_is_slow(times: list[tuple[float, float]], slow: list[str]) -> None:
    assert [*slow_nodes(nodes(*times))] == slow


def test_what_is_told_of_a_node() -> None:
    found = [
        *nodes((100, 2), (100, 2), (123, 3)),
        Trial("n4", ("its name does not resolve",), 100, 2),
    ]
    assert [*told(found)] == [
        ("n4", "its name does not resolve"),
        ("n3", "steps 23% slower than the median (123 ms, 100); "
               "all-reduces 50% slower than the median (3 ms, 2)"),
    ]  # fmt: skip


def test_a_clock_that_is_off_is_a_problem_once_it_is_sure() -> None:
    said = {"problems": ["small"], "step_ms": 1.0, "allreduce_ms": 1.0}
    assert Trial.of("n1", said, Clock(700, 100)).problems == ("small", "its clock is +0.7 s off")
    assert Trial.of("n1", said, Clock(-700, 250)).problems == ("small",)


class Fake:
    """A launcher whose nodes take these times."""

    def __init__(self, *times: tuple[float, float]) -> None:
        self.found, self.left_out = nodes(*times), [""][:0]

    def try_nodes(self, configuration: object) -> list[Trial]:
        return self.found

    def leave_out(self, names: Sequence[str]) -> None:
        self.left_out += names


def tried(launcher: Any, *, exclude_slow: bool = False) -> list[str]:
    said: list[str] = []
    try_nodes(launcher, CONFIGURATION, said.append, exclude_slow=exclude_slow)
    return said


def test_a_slow_node_is_named_and_ctrl_c_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    launcher = Fake((10, 1), (10, 1), (10, 1), (15, 1))
    said = tried(launcher)
    assert said[0].startswith("node n4: steps 50% slower than the median")
    assert "nothing is registered yet: Ctrl-C, then --exclude-slow" in said[1]
    assert (waited, launcher.left_out) == ([trial.PAUSE_SECONDS], [])
    monkeypatch.setattr("time.sleep", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        tried(launcher)


def _interrupt(seconds: float) -> None:
    raise KeyboardInterrupt


def test_slow_nodes_are_left_out_where_enough_are_left() -> None:
    launcher = Fake((10, 1), (10, 1), (10, 1), (15, 1))
    assert tried(launcher, exclude_slow=True)[1:] == ["left out: n4"]
    assert launcher.left_out == ["n4"]
    few = Fake((10, 1), (10, 1), (15, 1))
    with pytest.raises(FourminError, match="1 of 3 nodes are slow, and 3 are needed") as caught:
        tried(few, exclude_slow=True)
    assert "node n3: steps 50% slower" in caught.value.why
    assert few.left_out == []


def test_alike_nodes_are_said_to_be() -> None:
    assert tried(Fake((10, 1), (10, 1), (10.5, 1))) == [
        "3 nodes tried alone: a step takes 10 ms, none is slower by 10%"
    ]
    assert tried(Fake()) == []


@pytest.mark.parametrize("practice", [False, True])
def test_nothing_is_registered_before_the_nodes_were_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, practice: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[int] = []

    def fail(self: object, configuration: Any) -> None:
        asked.append(configuration.nodes)
        raise FourminError("node n2 does not answer")

    monkeypatch.setattr(TorchrunLauncher, "try_nodes", fail)
    with pytest.raises(FourminError, match="n2 does not answer"):
        fourmin_run(
            launcher="torchrun", nodes=2, procs_per_node=1, settings=["device=cpu"],
            practice=practice, trial=True if practice else None,
        )  # fmt: skip
    assert asked == [2]
    assert not [*tmp_path.glob("results/*")]
