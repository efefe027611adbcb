"""A launcher whose workers only act: they speak and log as real ones do, and train nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from campaign_factory import SYSTEM, Story, play_restart, play_run
from plans import make_plan

from fourmin.launch.control import ControlServer
from fourmin.launch.job import Job
from fourmin.ledger.campaign import RunState
from fourmin.log.writer import EventLogWriter
from fourmin.recipe.configuration import Configuration
from fourmin.results.plan import Plan


class RealClock:
    """The clocks of this machine; waiting is short, and no epoch faster than a processor can be."""

    def pass_ms(self, milliseconds: float) -> None:
        time.sleep(min(milliseconds, 12) / 1000)

    time_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)


@dataclass
class Place:
    """What the log's player needs to know of a campaign, from a worker's job."""

    job: Job
    ask: Any

    @property
    def plan(self) -> Plan:
        job = self.job
        return make_plan(
            benchmark=job.configuration.benchmark,
            submitter=job.submitter,
            division=job.configuration.division,
            system=job.system_name,
            practice=job.practice,
            ruleset=job.ruleset,
            package_digest=job.package_digest,
            system_digest=job.system_digest,
            dataset=job.dataset,
        )

    @property
    def digest(self) -> str:
        return self.job.campaign

    @property
    def configuration(self) -> Configuration:
        return self.job.configuration

    def start(self, slot: RunState, attempt: int) -> None:
        self.ask()


class ActingLauncher:
    """`fails_in` maps runs to how their second worker fails: `says`, `vanishes`, `before-start`,
    `interrupt` (as Ctrl-C would), `ends` (the launcher ends, its workers silent) or `hangs` (all
    workers do). It fails in the first `times` launches of the run."""

    def __init__(
        self, fails_in: dict[int, str] | None = None, times: int = 1, **story: Any
    ) -> None:
        self.fails_in = fails_in or {}
        self.times = times
        self.story = Story(**story)
        self.started: list[int] = []

    def describe(self, configuration: Configuration) -> str:
        return f"{configuration.workers} actors"

    def survey(self, nodes: int) -> None:
        return None

    def try_nodes(self, configuration: Configuration) -> list[Any]:
        return []

    def close(self) -> None:
        self.closed = True

    def start(self, job: Job) -> ActingWorkers:
        job.write()
        read = Job.read(job.path)
        assert read.configuration == job.configuration
        self.started.append(job.run)
        fails = self.started.count(job.run) <= self.times
        return ActingWorkers(read, self.fails_in.get(job.run) if fails else None, self.story)


class ActingWorkers:
    """Rank 0 plays the log in a thread; rank 1 fails if it is told to."""

    def __init__(self, job: Job, fault: str | None, story: Story) -> None:
        self._job, self._fault, self._story = job, fault, story
        self._control = ControlServer(job.control_socket)
        self.messages = self._control.messages
        self.go = self._control.go
        self._code: int | None = None
        self.killed = False
        self._thread = threading.Thread(target=self._act, daemon=True)
        self._thread.start()

    def exit_code(self) -> int | None:
        if self._fault == "interrupt" and not self._thread.is_alive():
            raise KeyboardInterrupt
        return self._code

    def kill(self) -> None:
        self.killed = True
        self._control.close()

    def output(self) -> str:
        return "a line from the workers\n"

    def _act(self) -> None:
        lines = [_Line(self._job, rank) for rank in range(self._job.configuration.workers)]
        self._lines = lines  # a line that is dropped hangs up
        fault = self._fault
        if fault == "before-start":
            lines[1].say("failed", summary="no such library", details="a traceback", final=False)
            self._code = 1
            return
        slot = RunState(self._job.run, self._job.seed)
        with EventLogWriter(self._job.events_log, resume=self._job.restart > 0) as log:
            self._play(log, Place(self._job, lines[0].ask), slot, None if fault is None else 2)
        if fault is None:
            lines[0].say("stopped", within=None)
            for line in lines:
                line.say("finished")
            self._code = 0
        elif fault == "says":
            lines[1].say(
                "failed", summary="the loss is not finite", details="it diverged", final=True
            )
        elif fault == "full disk":
            lines[0].say(
                "failed", summary="no room", details="make room", final=False, lasting=True
            )
        elif fault == "vanishes":
            lines[1].hang_up()
        elif fault == "hangs":
            lines[0].say("progress", doing="batch 7 of epoch 2", within=0.6)
        elif fault == "ends":
            for line in lines:
                line.say("finished") if line.rank == 0 else None
            self._code = 1

    def _play(self, log: EventLogWriter, place: Any, slot: RunState, cut_in: int | None) -> None:
        job, story, clock = self._job, self._told(), RealClock()
        if job.restart:
            play_restart(
                log, place, slot, job.restart, job.restart_epoch, story, clock, cut_in=cut_in
            )  # type: ignore[arg-type]
        else:
            play_run(log, place, slot, job.attempt, story, clock, cut_in=cut_in)  # type: ignore[arg-type]

    def _told(self) -> Story:
        import dataclasses

        return dataclasses.replace(self._story, system={**SYSTEM, **self._job.system})


class _Line:
    """A worker's end of the control socket, without the watch that would end this process."""

    def __init__(self, job: Job, rank: int) -> None:
        self.rank = rank
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(job.control_socket))
        self.say("hello")

    def say(self, kind: str, **data: Any) -> None:
        message = {"kind": kind, "rank": self.rank, "pid": 2**22 + self.rank, **data}
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def ask(self) -> None:
        self.say("ready")
        assert self._socket.recv(16) == b"go\n"

    def hang_up(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
