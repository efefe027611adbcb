"""Workers on this machine, started and watched by torchrun's elastic agent."""

from __future__ import annotations

from collections.abc import Sequence

from fourmin.launch import Surroundings, preflight
from fourmin.launch.agent import Agent, Forge, describe_agent, worker_arguments
from fourmin.launch.control import ControlServer
from fourmin.launch.job import Job
from fourmin.launch.trial import Trial
from fourmin.recipe.configuration import Configuration


class LocalLauncher:
    """One node: `torchrun --standalone`, through the interpreter that runs this command."""

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        """It needs nothing from around."""
        self._forge = Forge()

    def describe(self, configuration: Configuration) -> str:
        return describe_agent(configuration, ["--standalone"])

    def survey(self, nodes: int) -> None:
        """This host is one of the nodes."""

    def try_nodes(self, configuration: Configuration) -> list[Trial]:
        """One node is as fast as itself; what it will import can begin."""
        self._forge.prepare(configuration.threads)
        return []

    def leave_out(self, names: Sequence[str]) -> None:
        """There is one node."""

    def start(self, job: Job) -> LocalWorkers:
        facts = preflight.node_facts(job, holds_log=False)
        preflight.compare(job, [preflight.NodeFacts("this machine", facts)])
        arguments = worker_arguments(job.configuration, ["--standalone"])
        control = ControlServer(job.control_socket)
        return LocalWorkers(self._forge.start(arguments, job, {}), control)

    def close(self) -> None:
        """End what was kept for further runs."""
        self._forge.close()


class LocalWorkers:
    """The agent and its workers, and the line to them."""

    def __init__(self, agent: Agent, control: ControlServer) -> None:
        self._agent, self._control = agent, control
        self.messages, self.go = control.messages, control.go
        self.exit_code, self.output = agent.exit_code, agent.output

    def kill(self) -> None:
        self._agent.kill()
        self._control.close()
