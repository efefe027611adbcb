"""Nodes that are started by hand: this host is the first, and the others are told what to run.

A token that is set in FOURMIN_TOKEN is taken, as where a scheduler starts the other nodes.
The nodes stay for all runs of a campaign. In each run torchrun's agent on every node meets the
others at the first node; its rank is the place that the printed command has.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence

from fourmin.launch import Surroundings, network
from fourmin.launch.agent import describe_agents
from fourmin.launch.hub import Hub
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
        self._hub: Hub | None = None
        self._own: subprocess.Popen[bytes] | None = None

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
        return self._nodes(configuration.nodes).try_nodes(configuration)

    def leave_out(self, names: Sequence[str]) -> None:
        """Never asked for: there are no more nodes than are needed."""

    def start(self, job: Job) -> NodesRun:
        """Start the workers of `job`; the first time, wait for the nodes."""
        hub = self._nodes(job.configuration.nodes)
        lost = hub.lost()
        if lost:
            say = self._surroundings.say
            names = ", ".join(node.name for node in lost)
            say(f"node {names} is gone; the run goes on when its line is run again, within "
                f"{self._timeouts.rejoin:.0f} s")  # fmt: skip
        hub.wait(self._timeouts.rejoin, self._ended_early)
        return hub.start(job)

    def close(self) -> None:
        if self._hub is not None:
            self._hub.close()
        if self._own is not None:
            try:
                self._own.wait(self._timeouts.end)
            except subprocess.TimeoutExpired:
                self._own.kill()
                self._own.wait()

    def _nodes(self, nodes: int) -> Hub:
        """Where the nodes are; the first time, they are waited for."""
        if self._hub is not None:
            return self._hub
        known, say = os.environ.get(TOKEN_VARIABLE, ""), self._surroundings.say
        hub = Hub(nodes, (), self._surroundings, known)
        try:
            if nodes > 1 and not known:
                say("on each other node, with the same fourmin, run its line:")
                for command in self._commands(nodes, str(hub.port), hub.token):
                    say(f"  {command}")
            self._own = subprocess.Popen(
                _node_command(["127.0.0.1"], str(hub.port), 0, self._timeouts),
                env={**os.environ, TOKEN_VARIABLE: hub.token},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            hub.wait(self._timeouts.join, self._ended_early)
        except BaseException:
            hub.close()
            raise
        self._hub = hub
        return hub

    def _ended_early(self) -> str:
        code = self._own.poll() if self._own is not None else None
        return "" if code is None else f"this host's own part ended with {code}"

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
