"""A launcher that submits is one module and one entry: PBS, added in a copy of the package.

Its `qsub` and `qstat` are stubs that run the script here; the campaign in it is a real one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fourmin.base.files import rulesets_folder

PACKAGE = Path(__file__).resolve().parents[2] / "fourmin"

MODULE = '''
"""PBS: one node, in a job that qsub takes."""

import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.launch.local import LocalLauncher
from fourmin.launch.submit import FollowedJob, JobState


@dataclass(frozen=True)
class PbsSite:
    """`[pbs]`."""

    queue: str = ""
    account: str = ""


class PbsJobs:
    files_here = True
    gpus_per_node = None

    def __init__(self, site):
        self._site, self.root = site.section(PbsSite), Path.cwd()

    def describe(self, configuration, options, folder):
        command = [sys.executable, "-m", "fourmin", "run", *options, "--launcher=pbs", "--json"]
        asked = {"-N": "fourmin", "-q": self._site.queue, "-A": self._site.account,
                 "-l": f"nodes={configuration.nodes}", "-o": f"{folder}/pbs.out",
                 "-e": f"{folder}/pbs.err"}
        lines = [f"#PBS {name} {value}" for name, value in asked.items() if value]
        return "\\\\n".join(["#!/bin/sh", *lines, "exec " + shlex.join(command), ""])

    def submit(self, configuration, options, folder):
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / "job.sh"
        script.write_text(self.describe(configuration, options, folder))
        done = subprocess.run(["qsub", str(script)], capture_output=True, text=True)
        if done.returncode:
            raise FourminError("PBS did not take the job", done.stderr)
        return PbsJob(done.stdout.strip(), folder)


class PbsJob(FollowedJob):
    def __init__(self, number, folder):
        super().__init__(f"PBS job {number}", folder / "pbs")
        self._number = number

    def state(self):
        done = subprocess.run(["qstat", "-f", self._number], capture_output=True, text=True)
        name = re.search(r"job_state = (\\w)", done.stdout)[1]
        code = int((re.search(r"Exit_status = (\\d+)", done.stdout) or [0, 0])[1])
        phases = {"Q": "waiting", "R": "running"}
        return JobState(name, phases.get(name, "failed" if code else "ended"), "", code)

    def interrupt(self):
        subprocess.run(["qsig", "-s", "SIGINT", self._number])

    def end(self):
        subprocess.run(["qdel", self._number])
'''.replace("\\\\n", "\\n")

ENTRY = """
    "pbs": Kind(
        "fourmin.launch.local:LocalLauncher",
        submits="fourmin.launch.pbs:PbsJobs",
        section="fourmin.launch.pbs:PbsSite",
        title="PBS",
        program="qsub",
        inside="PBS_JOBID",
    ),
"""

QSUB = """#!/bin/sh
# Runs the job here, its output where the script says.
out=$(sed -n 's/^#PBS -o //p' "$1"); err=$(sed -n 's/^#PBS -e //p' "$1")
echo "$1" >> {folder}/submitted
(PBS_JOBID=7.pbs sh "$1" > "$out" 2> "$err"; echo $? > {folder}/code) > /dev/null 2>&1 &
echo 7.pbs
"""
QSTAT = """#!/bin/sh
if [ -f {folder}/code ]; then echo "job_state = F"; echo "Exit_status = $(cat {folder}/code)"
else echo "job_state = R"; fi
"""


@pytest.fixture
def pbs(tmp_path: Path) -> dict[str, str]:
    """The environment of a copy of the package that knows PBS, on a host of a PBS cluster."""
    copy = tmp_path / "copy"
    shutil.copytree(PACKAGE, copy / "fourmin", ignore=shutil.ignore_patterns("__pycache__"))
    if rulesets_folder().name == "rules":
        (copy / "rules").symlink_to(rulesets_folder())
    (copy / "fourmin/launch/pbs.py").write_text(MODULE.lstrip())
    registry = copy / "fourmin/launch/registry.py"
    text, entries = re.subn(r'\n(?=    "kubernetes": )', ENTRY, registry.read_text())
    assert entries == 1
    registry.write_text(text)
    for name, script in (("qsub", QSUB), ("qstat", QSTAT)):
        (tmp_path / name).write_text(script.format(folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    return {
        **os.environ, "PYTHONPATH": str(copy), "XDG_STATE_HOME": str(tmp_path / "state"),
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "COLUMNS": "200",
    }  # fmt: skip


def test_a_practice_campaign_runs_through_a_launcher_that_was_added(
    pbs: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "site.toml").write_text('[pbs]\nqueue = "gpu"\n')
    command = [sys.executable, "-m", "fourmin", "run", "--practice", "--launcher", "pbs",
               "--site", "site.toml", "--account", "lab", "--set", "device=cpu"]  # fmt: skip

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *options], env=pbs, cwd=work, capture_output=True, text=True, timeout=200
        )

    shown = run("--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "#PBS -q gpu\n#PBS -A lab\n" in shown.stdout
    wrong = run("--data-dir", "nosuch")
    assert wrong.returncode == 2
    assert not (tmp_path / "submitted").exists()

    done = run("--runs", "1", "--max-steps", "4", "--procs-per-node", "1")
    assert done.returncode == 0, done.stderr
    assert "PBS job 7.pbs submitted; its files are in" in done.stderr
    assert "PBS job 7.pbs: F" in done.stderr
    assert "checked: valid" in done.stdout
    (campaign,) = (work / "results").glob("practice-digits-*")
    assert (campaign / "summary.json").is_file()
    unknown = run("--partition", "gpu")
    assert "launcher pbs has no use for --partition" in unknown.stderr
