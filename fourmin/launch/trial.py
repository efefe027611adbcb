"""What a node is found to be before a campaign is registered: its limits, and how fast it is alone.

A node that is asked starts its workers by themselves, on synthetic images (`training.trial`).
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.launch.agent import Agent, Forge, agent_arguments
from fourmin.launch.preflight import Clock
from fourmin.recipe.configuration import Configuration
from fourmin.system.fitness import bad_nccl, node_problems

TRIAL_VARIABLE = "FOURMIN_TRIAL"


@dataclass(frozen=True)
class Trial:
    """One node. Times are medians in ms of its own workers' steps and all-reduces among them."""

    name: str
    problems: tuple[str, ...]
    step_ms: float
    allreduce_ms: float

    @classmethod
    def of(cls, name: str, said: Mapping[str, Any], clock: Clock) -> Trial:
        """What a node said, and what its clock says."""
        problems = [*said["problems"], *([f"its clock is {clock.off}"] if clock.off else [])]
        return cls(name, tuple(problems), said["step_ms"], said["allreduce_ms"])


def try_node(
    asked: Mapping[str, Any], scratch: Path, forge: Forge, started: Callable[[Agent], object]
) -> dict[str, Any]:
    """This node's part; `started` is told what has to be ended, should the command go.

    Raises FourminError where the workers fail.
    """
    configuration = Configuration.from_json(asked["configuration"])
    gpus = configuration.procs_per_node if configuration.device == "cuda" else 0
    problems = list(node_problems(asked["names"], configuration.workers, gpus))
    place = scratch / "trial.json"
    place.write_text(json.dumps(asked["configuration"]))
    module = "fourmin.training.trial"
    agent = forge.spawn(
        agent_arguments(configuration.procs_per_node, ["--standalone"], module),
        configuration.threads,
        scratch,
        {TRIAL_VARIABLE: str(place)},
    )
    started(agent)
    if agent.wait():
        lines = agent.output().strip().splitlines()
        raise FourminError("its workers failed by themselves", "; ".join(lines[-4:]))
    found = json.loads(place.with_suffix(".out").read_text())
    known = bad_nccl(found["nccl"], platform.machine()) if gpus and found["nccl"] else ""
    return {
        "problems": [*problems, *filter(None, [known])],
        "step_ms": found["step_ms"],
        "allreduce_ms": found["allreduce_ms"],
    }
