"""One node's part in the runs of a command elsewhere: `python -m fourmin.launch.node`.

It connects to the command, says what this node has, and for each run starts torchrun's agent
here and passes on what the workers say. They speak to it as they would to the command itself.
When the command has gone it ends them; when it is killed itself, they end by their own watch.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.processes import Scratch
from fourmin.launch import network, preflight, trial
from fourmin.launch.agent import Agent, Forge, worker_arguments
from fourmin.launch.control import ORPHANED, ControlServer
from fourmin.launch.job import Job
from fourmin.launch.timeouts import LAST_WORDS_SECONDS, TERMINATION_SECONDS, Timeouts
from fourmin.launch.wire import TOKEN_VARIABLE, Wire, connect


def main(arguments: Sequence[str] | None = None) -> None:
    """Join the command and serve it until it says goodbye."""
    parser = argparse.ArgumentParser(prog="python -m fourmin.launch.node", description=__doc__)
    parser.add_argument("command", metavar="ADDRESS[,ADDRESS...]:PORT")
    parser.add_argument("--index", type=int, help="this node's place, from 0")
    parser.add_argument("--name", help="what this node is called; default: as the system says")
    parser.add_argument("--timeout", action="append", default=[], help="as `fourmin run` takes it")
    options = parser.parse_args(arguments)
    addresses, _, port = options.command.rpartition(":")
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not (addresses and port.isdigit() and token):
        parser.error(f"the command's address and port are needed, and {TOKEN_VARIABLE}")
    index = options.index
    if index is None and "SLURM_NODEID" in os.environ:
        index = int(os.environ["SLURM_NODEID"])
    name = options.name or os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    try:
        timeouts, _ = Timeouts.parse(options.timeout)
        wire = connect(
            addresses.split(","), int(port), token, timeouts.join, silence=timeouts.silence
        )
    except (OSError, OverflowError, FourminError) as error:
        sys.exit(f"node {name} cannot reach the command: {error}")
    signal.signal(signal.SIGTERM, _terminate_later)
    sys.exit(NodePart(wire, name, index).serve())


def _terminate_later(number: int, frame: object) -> None:
    threading.Timer(TERMINATION_SECONDS, os._exit, (128 + number,)).start()


class NodePart:
    """This node's side of the connection."""

    def __init__(self, wire: Wire, name: str, index: int | None) -> None:
        self._wire = wire
        self._name = name
        self._index = index
        self._run: _LocalRun | None = None
        self._trials: list[Agent] = []
        self._forge = Forge()
        self._prepared: tuple[Job, Scratch] | None = None

    def serve(self) -> int:
        """Do what the command says until it has gone; returns the exit code."""
        self._wire.send("join", name=self._name, index=self._index)
        try:
            while (message := self._wire.receive()) is not None:
                kind = message["kind"]
                if kind == "bye":
                    return 0
                if kind == "refused":
                    print(f"refused: {message['summary']}", file=sys.stderr)  # noqa: T201
                    return 2
                self._do(kind, message)
            return ORPHANED
        except OSError:
            return ORPHANED
        finally:
            self._end_run()
            self._forge.close()

    def _do(self, kind: str, message: Mapping[str, Any]) -> None:
        if kind == "ping":
            self._wire.send("pong", sent_ns=message["sent_ns"], now_ns=time.time_ns())
        elif kind == "prepare":
            # Reading a large manifest takes seconds; pings are answered meanwhile.
            threading.Thread(target=self._prepare, args=(message["job"],), daemon=True).start()
        elif kind == "try":
            threading.Thread(target=self._try, args=(message,), daemon=True).start()
        elif kind == "start":
            self._start(message)
        elif kind == "go" and self._run is not None:
            self._run.control.go(int(message["rank"]))
        elif kind == "kill":
            code, output = self._end_run()
            self._wire.send("killed", code=code, output=output)

    def _prepare(self, described: Mapping[str, Any]) -> None:
        try:
            self._end_run()
            scratch = Scratch()
            job = replace(Job.from_json(described), scratch=scratch.path)
            self._prepared = job, scratch
            facts = preflight.node_facts(job, holds_log=self._index == 0)
            self._wire.send("facts", facts=facts, port=network.free_port())
        except (OSError, ValueError, KeyError, TypeError, FourminError) as error:
            self._say_unfit(error)

    def _try(self, asked: Mapping[str, Any]) -> None:
        try:
            with Scratch() as scratch:
                said = trial.try_node(asked, scratch, self._forge, self._trials.append)
            self._wire.send("tried", **said)
        except (OSError, ValueError, KeyError, FourminError) as error:
            self._say_unfit(error)

    def _start(self, message: Mapping[str, Any]) -> None:
        assert self._prepared is not None
        job, scratch = self._prepared
        job = replace(job, clocks=message["clocks"])
        variables = {}
        interface = network.interface_of(self._wire.local_address)
        if interface and "GLOO_SOCKET_IFNAME" not in os.environ:
            # gloo would take the address that the host's name stands for, often a loopback.
            variables["GLOO_SOCKET_IFNAME"] = interface
        control = ControlServer(job.control_socket)
        arguments = worker_arguments(job.configuration, message["place"])
        agent = self._forge.start(arguments, job, variables)
        workers = job.configuration.procs_per_node
        self._run = _LocalRun(agent, workers, control, scratch, self._wire)

    def _say_unfit(self, error: Exception) -> None:
        with suppress(OSError):
            self._wire.send("unfit", summary=f"{type(error).__name__}: {error}")

    def _end_run(self) -> tuple[int, str]:
        """End what runs here; the agent's exit code and the end of the output."""
        while self._trials:
            self._trials.pop().kill()
        run, self._run = self._run, None
        return run.end() if run is not None else (0, "")


@dataclass(eq=False)
class _LocalRun:
    """The agent of one run, and the passing on of what its workers say."""

    _agent: Agent
    _left: int
    """Workers that have not ended."""
    control: ControlServer
    _scratch: Scratch
    _wire: Wire

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._relay = threading.Thread(target=self._pass_on, daemon=True)
        self._relay.start()

    def end(self) -> tuple[int, str]:
        """Kill what is left; the agent's exit code and what was printed."""
        self._over.set()
        self._agent.kill()
        self.control.close()
        self._relay.join(5)
        output = self._agent.output()
        code = self._agent.exit_code() or 0
        self._scratch.remove()
        return code, output

    def _pass_on(self) -> None:
        told_of_failure = False
        code: int | None = None
        patience = 0.0
        with suppress(OSError):
            while not self._over.is_set():
                try:
                    message = self.control.messages.get(timeout=0.05)
                except queue.Empty:
                    if code is None:
                        code = self._agent.exit_code()
                        # The last words may still be under way.
                        patience = time.monotonic() + LAST_WORDS_SECONDS
                    elif self._left <= 0 or time.monotonic() > patience:
                        self._wire.send("ended", code=code, told=told_of_failure)
                        return
                    continue
                self._left -= message.kind in ("finished", "failed", "lost")
                told_of_failure = told_of_failure or message.kind in ("failed", "lost")
                self._wire.send("worker", message=vars(message))


if __name__ == "__main__":
    main()
