"""Nodes that are started by hand: this host is the first, and the others are told what to run.

A token that is set in FOURMIN_TOKEN is taken, as where a scheduler starts the other nodes.
The nodes stay for all runs of a campaign. In each run torchrun's agent on every node meets the
others at the first node; its rank is the place that the printed command has.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from fourmin.launch import Surroundings, network
from fourmin.launch.agent import describe_agents
from fourmin.launch.hub import Hub, Step
from fourmin.launch.job import Job
from fourmin.launch.nodes import NodesRun
from fourmin.launch.timeouts import Timeouts
from fourmin.launch.trial import Trial
from fourmin.launch.wire import TOKEN_VARIABLE
from fourmin.recipe.configuration import Configuration


class TorchrunLauncher:
    """Waits for nodes, this host being the first of them."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._timeouts = surroundings.timeouts
        self._step: Step | None = None

    def describe(self, configuration: Configuration) -> str:
        """The command for each other node; port and token are those of the real start."""
        commands = self._commands(configuration.nodes, "PORT", "TOKEN")
        return "\n".join([*commands, describe_agents(configuration)])

    def survey(self, nodes: int) -> None:
        """This host is one of the nodes. Raises FourminError where they could not reach it."""
        if self._surroundings.address:
            network.require_resolved(self._surroundings.address)
        network.listen(self._surroundings.port).close()

    def try_nodes(self, configuration: Configuration) -> list[Trial]:
        """Those that were started, which stay."""
        return self._nodes(configuration.nodes).hub.try_nodes(configuration)

    def leave_out(self, names: Sequence[str]) -> None:
        """Never asked for: there are no more nodes than are needed."""

    def start(self, job: Job) -> NodesRun:
        """Start the workers of `job`; the first time, wait for the nodes."""
        step = self._nodes(job.configuration.nodes)
        lost = step.hub.lost()
        if lost:
            say = self._surroundings.say
            names = ", ".join(node.name for node in lost)
            say(f"node {names} is gone; the run goes on when its line is run again, within "
                f"{self._timeouts.rejoin:.0f} s")  # fmt: skip
        step.wait(self._timeouts.rejoin)
        return step.hub.start(job)

    def close(self) -> None:
        if self._step is not None:
            self._step.end()

    def _nodes(self, nodes: int) -> Step:
        """Where the nodes are; the first time, they are waited for."""
        if self._step is None:
            known, say = os.environ.get(TOKEN_VARIABLE, ""), self._surroundings.say
            hub = Hub(nodes, (), self._surroundings, known)
            if nodes > 1 and not known:
                say("on each other node, with the same fourmin, run its line:")
                for command in self._commands(nodes, str(hub.port), hub.token):
                    say(f"  {command}")
            own = _node_command(["127.0.0.1"], str(hub.port), 0, self._timeouts)
            self._step = Step(hub, own, "this host's own part", self._timeouts)
        return self._step

    def _commands(self, nodes: int, port: str, token: str) -> list[str]:
        given = self._surroundings.address
        addresses = [given] if given else network.reachable_names()[:2]
        commands = [
            shlex.join(_node_command(addresses, port, index, self._timeouts))
            for index in range(1, nodes)
        ]
        return [f"{TOKEN_VARIABLE}={token} {command}" for command in commands]


def _node_command(addresses: list[str], port: str, index: int, timeouts: Timeouts) -> list[str]:
    place = [f"{','.join(addresses)}:{port}", "--index", str(index), *timeouts.options()]
    return [sys.executable, "-m", "fourmin.launch.node", *place]
