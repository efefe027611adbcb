"""Workers, agents and whole commands killed at random moments: nothing is lost, all goes on.

`FOURMIN_KILLS=200 pytest tests/run/test_random_kills.py -m slow` kills so often.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from processes import AGENT, PRACTICE, WORKER, environment, fourmin

from fourmin.ledger import chain

KILLS = int(os.environ.get("FOURMIN_KILLS", "30"))
VICTIMS = ("command", "worker", "agent")
STEPS = ["--max-steps", "66"]
"""Three epochs: a checkpoint after the second, and the end."""


class Torture:
    """Campaigns one after the other in one folder, and a command that runs the newest."""

    def __init__(self, root: Path, runs: int) -> None:
        self._root, self._runs = root, runs
        self._results = root / "results"
        self._results.mkdir()
        self._ledger = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._epochs = 0
        self.restarts = 0

    def campaigns(self) -> list[Path]:
        return sorted(path.parent for path in self._results.glob("*/ledger.jsonl"))

    def unfinished(self) -> Path | None:
        found = [
            path
            for path in self.campaigns()
            if b"campaign-close" not in (path / "ledger.jsonl").read_bytes()
        ]
        assert len(found) <= 1
        return found[0] if found else None

    def keep_running(self) -> subprocess.Popen[bytes]:
        """The command; started anew, with the campaign that goes on, where it has ended."""
        if self._process is None or self._process.poll() is not None:
            self.check()
            campaign = self.unfinished()
            options = [*PRACTICE, *STEPS, "--runs", str(self._runs)]
            options += ["--results-dir", str(self._results)]
            if campaign is not None:
                options = ["--resume", str(campaign)]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fourmin", "run", "--quiet", *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment(self._root),
            )
        return self._process

    def kill(self, victim: str, after: float, *, in_training: bool) -> None:
        """Kill one of the command's family `after` seconds from now, or when there is one.

        With `in_training` the seconds count from the first epoch that begins after the last kill.
        """
        self.keep_running()
        while in_training and self.epochs_begun() == self._epochs:
            self.keep_running()
            time.sleep(0.01)
        deadline = time.monotonic() + after
        while True:
            command = psutil.Process(self.keep_running().pid)
            try:
                below = command.children(recursive=True)
                names = {child: child.name() for child in below}
            except psutil.NoSuchProcess:
                continue
            victims = [command, *below]
            if victim != "command":
                begin = AGENT if victim == "agent" else WORKER
                victims = [child for child, name in names.items() if name.startswith(begin)][-1:]
            if victims and time.monotonic() > deadline:
                break
            time.sleep(0.01)
        for process in victims:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._epochs = self.epochs_begun()
        if victim == "command":
            self.wait()
            psutil.wait_procs(victims, timeout=10)

    def epochs_begun(self) -> int:
        """Epochs that have begun in all runs of all campaigns, those trained again too."""
        logs = self._results.glob("*/run-*/events.log")
        return sum(log.read_bytes().count(b'"epoch_start"') for log in logs)

    def wait(self) -> None:
        """Until the command has ended."""
        assert self._process is not None
        self._process.wait(timeout=240)

    def check(self) -> None:
        """Every folder validates, and the ledger of the one that goes on only grew."""
        if not self.campaigns():
            return
        done = fourmin("validate", str(self._results), state=self._root)
        assert done.returncode == 0, done.stdout
        newest = self.campaigns()[-1]
        ledger = (newest / "ledger.jsonl").read_bytes()
        if self._ledger[:200] == ledger[:200]:
            assert ledger.startswith(self._ledger)
        self._ledger = ledger[: ledger.rfind(b"\n") + 1]
        entries, problems = chain.parse(self._ledger)
        assert not problems
        for kind in ("run-start", "run-result"):
            counts = Counter(e.data["run"] for e in entries if e.kind == kind)
            assert all(count == 1 for count in counts.values())

    def finish(self) -> None:
        """Let the campaign that goes on come to its end."""
        self.wait()
        while self.unfinished() is not None:
            self.keep_running()
            self.wait()
        self.check()
        assert self.campaigns()
        for campaign in self.campaigns():
            entries, _ = chain.parse((campaign / "ledger.jsonl").read_bytes())
            assert entries[-1].kind == "campaign-close"
            self.restarts += sum(entry.kind == "run-restart" for entry in entries)
            assert not list(campaign.glob("run-*/checkpoints"))


def torture(root: Path, kills: int, runs: int) -> Torture:
    """Kill command, worker and agent in turn: now in training, now from the first import on."""
    chance = random.Random(os.environ.get("FOURMIN_TEST_SEED", "9"))
    under = Torture(root, runs)
    for number in range(kills):
        in_training = chance.random() < 0.7
        after = chance.uniform(0, 1.5 if in_training else 5.0)
        under.kill(VICTIMS[number % 3], after, in_training=in_training)
    under.finish()
    return under


def test_one_kill(tmp_path: Path) -> None:
    """Of the whole command; of workers and agents see test_resume.py."""
    torture(tmp_path, kills=1, runs=1)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_kills(tmp_path: Path) -> None:
    under = torture(tmp_path, kills=KILLS, runs=2)
    assert under.restarts > 0
    assert len(under.campaigns()) > 1
