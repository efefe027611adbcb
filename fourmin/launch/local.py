"""Workers on this machine, started and watched by torchrun's elastic agent."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from fourmin.launch import Surroundings, preflight
from fourmin.launch.agent import Agent, agent_command, start_agent
from fourmin.launch.control import ControlServer
from fourmin.launch.job import Job
from fourmin.launch.trial import Trial
from fourmin.recipe.configuration import Configuration


class LocalLauncher:
    """One node: `torchrun --standalone`, through the interpreter that runs this command."""

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        """It needs nothing from around."""

    def describe(self, configuration: Configuration) -> str:
        return shlex.join(agent_command(configuration, ["--standalone"]))

    def survey(self, nodes: int) -> None:
        """This host is one of the nodes."""

    def try_nodes(self, configuration: Configuration) -> list[Trial]:
        """One node is as fast as itself."""
        return []

    def leave_out(self, names: Sequence[str]) -> None:
        """There is one node."""

    def start(self, job: Job) -> LocalWorkers:
        facts = preflight.node_facts(job, holds_log=False)
        preflight.compare(job, [preflight.NodeFacts("this machine", facts)])
        command = agent_command(job.configuration, ["--standalone"])
        control = ControlServer(job.control_socket)
        return LocalWorkers(start_agent(command, job, {}), control)

    def close(self) -> None:
        """Nothing outlives a run."""


class LocalWorkers:
    """The agent and its workers, and the line to them."""

    def __init__(self, agent: Agent, control: ControlServer) -> None:
        self._agent = agent
        self.messages = control.messages
        self._control = control

    def go(self, rank: int) -> None:
        self._control.go(rank)

    def exit_code(self) -> int | None:
        return self._agent.exit_code()

    def kill(self, workers: Iterable[int]) -> None:
        self._agent.kill(workers)
        self._control.close()

    def output(self) -> str:
        return self._agent.output()
