"""`fourmin run` on a real Slurm with four nodes, started and stopped here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Cluster

RUN = [
    sys.executable, "-m", "fourmin", "run", "--launcher", "slurm", "--nodes", "4",
    "--procs-per-node", "1", "--set", "device=cpu",
]  # fmt: skip


STARTED: list[subprocess.Popen[str]] = []
"""What a test started; killed at its end, should it still run."""


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.communicate()


def environment(cluster: Cluster, state: Path) -> dict[str, str]:
    return {**cluster.environment, "XDG_STATE_HOME": str(state), "COLUMNS": "200"}


def started(cluster: Cluster, folder: Path, *options: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*RUN, *options, "--results-dir", str(folder / "results")],
        env=environment(cluster, folder), cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    STARTED.append(process)
    return process


def wait_for_note(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        if text in line:
            return
        said.append(line)
    raise AssertionError(f"it ended before it said {text!r}: {''.join(said[-20:])}")


def test_slurm_accepts_the_256_node_script(cluster: Cluster, tmp_path: Path) -> None:
    options = ["--preset", "resnet50-64k", "--partition", "large", "--time-limit", "04:00:00",
               "--submitter", "lab"]  # fmt: skip
    (tmp_path / "site.toml").write_text(
        "[slurm]\ngpus_per_node = 8\ncpus_per_task = 64\nmodules = ['cuda']\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "fourmin", "run", "--dry-run", "--json", *options, "--directive",
         "--comment=two words", "--site", "site.toml"],
        env=environment(cluster, tmp_path), cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert [one["why"] for one in told["refused"]] == ["no --data-dir was given"]
    assert told["launcher"] == "slurm"
    assert "srun --nodes=256" in told["command"]
    (tmp_path / "job.sh").write_text(told["submits"])
    accepted = cluster.ask("sbatch", "--test-only", str(tmp_path / "job.sh"))
    assert "to start at" in accepted
    assert "on nodes big[001-256] in partition large" in accepted
    refused = told["submits"].replace("--nodes=256", "--nodes=257")
    (tmp_path / "job.sh").write_text(refused)
    assert "allocation failure" in cluster.ask("sbatch", "--test-only", str(tmp_path / "job.sh"))


def test_what_sbatch_refuses_is_told(cluster: Cluster, tmp_path: Path) -> None:
    process = started(cluster, tmp_path, "--partition", "nosuch")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Slurm did not take the job" in errors
    assert "invalid partition" in errors
    assert "Traceback" not in errors


def test_a_job_that_waits_is_shown_and_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    process = started(cluster, tmp_path, "--directive", "--hold")
    wait_for_note(process, "PENDING (JobHeldUser)")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "no campaign was registered" in errors
    assert not cluster.jobs()


def test_what_can_be_refused_outside_is_not_submitted(cluster: Cluster, tmp_path: Path) -> None:
    process = started(cluster, tmp_path, "--data-dir", "nowhere")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "no folder" in errors
    assert "submitted" not in errors


def test_an_error_inside_the_job_comes_out_with_its_exit_code(
    cluster: Cluster, tmp_path: Path
) -> None:
    # A node is looked at in its image, which has no such Python.
    (tmp_path / "site.toml").write_text(
        '[container]\nruntime = "apptainer"\nimage = "image.sif"\npython = "nowhere"\n'
    )
    process = started(cluster, tmp_path, "--site", "site.toml")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "could not be looked at" in errors
    assert "ended: FAILED" in errors


def test_an_interrupt_while_nodes_start_cancels_the_job(cluster: Cluster, tmp_path: Path) -> None:
    process = started(cluster, tmp_path, "--practice", "--runs", "1")
    wait_for_note(process, "run 1/1  seed")
    assert cluster.jobs()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "is cancelled" in errors
    assert not cluster.jobs()
    (campaign,) = (tmp_path / "results").glob("practice-digits-*")
    assert f"--resume {campaign}" in errors
    wait_until_no_worker(tmp_path)


APPTAINER = """#!/bin/sh
# Runs on the host what it was to run in the image, and writes down that it was asked.
echo "$@" >> {log}
while [ "$1" != image.sif ]; do shift; done
shift
exec "$@"
"""


def test_in_a_container_the_plan_describes_the_container(cluster: Cluster, tmp_path: Path) -> None:
    program, log = tmp_path / "bin" / "apptainer", tmp_path / "asked"
    program.parent.mkdir()
    program.write_text(APPTAINER.format(log=log))
    program.chmod(0o755)
    (tmp_path / "site.toml").write_text(
        f'[container]\nruntime = "apptainer"\nimage = "image.sif"\npython = "{sys.executable}"\n'
        f'mounts = ["/a:/b"]\n[environment]\nPATH = "{program.parent}:{os.environ["PATH"]}"\n'
        'NCCL_DEBUG = "WARN"\n'
    )
    process = started(cluster, tmp_path, "--site", "site.toml", "--practice", "--runs", "1")
    wait_for_note(process, "run 1/1  seed")
    deadline = time.monotonic() + 30
    while "fourmin.launch.node" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    asked = log.read_text().splitlines()
    python = f"--bind=/a:/b image.sif {sys.executable}"
    assert asked[0] == f"exec --nv {python} -m fourmin.system.survey"
    assert asked[1].startswith(f"exec {python} -m fourmin.launch.node ")
    wait_until_no_worker(tmp_path)


@pytest.mark.slow
def test_a_campaign_converges_and_validates_over_several_jobs(
    cluster: Cluster, tmp_path: Path
) -> None:
    process = started(cluster, tmp_path, "--runs-per-job", "3")
    output, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors
    assert "checked: valid" in output
    assert "run 5/5  converged" in errors
    assert "accuracy" in errors
    assert errors.count("submitted; its files are in") == 2
    (campaign,) = (tmp_path / "results").glob("digits-*")
    validated = subprocess.run(
        [sys.executable, "-m", "fourmin", "validate", str(campaign)],
        env=environment(cluster, tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert validated.returncode == 0, validated.stdout
    result = json.loads((campaign / "run-1" / "result.json").read_bytes())
    assert result["configuration"]["nodes"] == 4
    assert len(result["clocks"]["node_offset_ms"]) == 4
    assert len(result["clocks"]["rank_wait_ms_mean"]) == 4


@pytest.mark.slow
def test_an_interrupt_in_training_cancels_the_job_and_the_campaign_resumes(
    cluster: Cluster, tmp_path: Path
) -> None:
    options = ["--practice", "--runs", "2", "--max-steps", "60"]
    process = started(cluster, tmp_path, *options)
    wait_for_note(process, "epoch 2  accuracy")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert not cluster.jobs()
    wait_until_no_worker(tmp_path)
    (campaign,) = (tmp_path / "results").glob("practice-digits-*")
    again = subprocess.run(
        [sys.executable, "-m", "fourmin", "run", "--resume", str(campaign), "--launcher", "slurm"],
        env=environment(cluster, tmp_path), cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert "checked: valid" in again.stdout


def started_and_saved(cluster: Cluster, folder: Path) -> subprocess.Popen[str]:
    """A run that has a checkpoint, and long to go."""
    process = started(cluster, folder, "--practice", "--runs", "1", "--max-steps", "132")
    wait_for_note(process, "epoch 2  accuracy")
    time.sleep(1.0)  # the checkpoint is written beside the training
    return process


def set_down(cluster: Cluster, node: str) -> None:
    cluster.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")


def resume(cluster: Cluster, *nodes: str) -> None:
    for node in nodes:
        cluster.ask("scontrol", "update", f"nodename={node}", "state=resume")


def ended_after_one_restart(process: subprocess.Popen[str], folder: Path, seconds: float) -> Path:
    """The campaign's folder, which is valid."""
    output, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors
    assert "checked: valid" in output
    (campaign,) = (folder / "results").glob("practice-digits-*")
    kinds = [json.loads(line)["kind"] for line in (campaign / "ledger.jsonl").open()]
    assert (kinds.count("run-intent"), kinds.count("run-restart")) == (1, 1)
    return campaign


@pytest.mark.slow
def test_a_node_set_down_in_training_requeues_the_job_and_the_lost_time_counts(
    cluster: Cluster, tmp_path: Path
) -> None:
    process = started_and_saved(cluster, tmp_path)
    try:
        set_down(cluster, "n3")
        wait_for_note(process, "PENDING")
    finally:
        resume(cluster, "n3")
    campaign = ended_after_one_restart(process, tmp_path, 400)
    result = json.loads((campaign / "run-1" / "result.json").read_bytes())
    (restart,) = result["restarts"]
    assert restart["epoch"] >= 2
    assert result["minutes"] > restart["lost_minutes"] > 5 / 60
    wait_until_no_worker(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_a_node_that_dies_while_the_job_is_queued_again_is_waited_for(
    cluster: Cluster, tmp_path: Path
) -> None:
    process = started_and_saved(cluster, tmp_path)
    try:
        set_down(cluster, "n3")
        wait_for_note(process, "PENDING")
        set_down(cluster, "n2")
        resume(cluster, "n3")
        # Slurm holds a job that is queued again for a while, and then has too few nodes for it.
        time.sleep(5.0)
        assert [job.split()[1] for job in cluster.jobs()] == ["PENDING"]
        assert process.poll() is None
    finally:
        resume(cluster, "n2", "n3")
    ended_after_one_restart(process, tmp_path, 600)
    wait_until_no_worker(tmp_path)


def wait_until_no_worker(state: Path, seconds: float = 20) -> None:
    """Until no process is left whose environment is this test's."""
    mark = f"XDG_STATE_HOME={state}".encode()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        left = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in environ.read_bytes().split(b"\0"):
                    left.append(environ.parent.name)
            except OSError:
                continue
        if not [pid for pid in left if int(pid) != os.getpid()]:
            return
        time.sleep(0.1)
    raise AssertionError(f"still there after {seconds} s: {left}")
