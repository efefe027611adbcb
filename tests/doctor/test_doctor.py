"""`fourmin doctor`: what is found, what is missing, and what to do next."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.campaign.request import Placement
from fourmin.cli.main import app
from fourmin.datasets.digits import ensure_digits
from fourmin.doctor import machine, software
from fourmin.doctor.check import MISSING, OK, WARNING, Check
from fourmin.doctor.examine import Examination, examine, examine_nodes
from fourmin.doctor.presets import PresetCheck, check_presets
from fourmin.doctor.software import StackProbe
from fourmin.launch.trial import Trial
from fourmin.recipe.presets import PRESETS

H100 = {"model": "NVIDIA H100", "memory_gib": 80, "count": 2}


def only(checks: Any) -> Check:
    (check,) = checks
    return check  # type: ignore[no-any-return]


def test_the_whole_command_on_this_machine_leaves_nothing(tmp_path: Path) -> None:
    """And imports nothing heavy: torch is looked at in another process."""
    program = (
        "import sys\nfrom fourmin.cli.main import app\nsys.argv[1:] = ['doctor', '--json']\n"
        "try: app()\nexcept SystemExit as end: assert not end.code, end.code\n"
        "heavy = ('torch', 'numpy', 'PIL', 'nvidia.dali')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text, _, heavy = done.stdout.rstrip().rpartition("\n")
    assert heavy == "[]"
    found = json.loads(text)
    assert found["ok"] is True
    topics = {check["topic"] for check in found["checks"]}
    assert topics >= {
        "python", "training stack", "driver", "processors", "memory", "gpus", "clock",
        "results folder", "cache", "earlier campaigns", "launchers",
    }  # fmt: skip
    assert [preset["name"] for preset in found["presets"]] == list(PRESETS)
    digits = found["presets"][0]
    assert (digits["name"], digits["can_run"], digits["missing"]) == ("digits", True, [])
    for preset in found["presets"]:
        assert preset["can_run"] == (not preset["missing"])
        assert all(one["what"] and one["next_step"] for one in preset["missing"])
    for check in found["checks"]:
        assert (check["status"] == OK) == (not check["next_step"]), check
    assert list(tmp_path.iterdir()) == []


def test_without_a_place_for_results_the_main_job_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software.Probing, "result", lambda _: StackProbe())
    monkeypatch.setattr(software, "_PROBE", "")
    (tmp_path / "results").write_text("a file")
    done = CliRunner().invoke(app, ["doctor", "--results-dir", str(tmp_path / "results")])
    assert done.exit_code == 2
    assert "missing  results folder" in done.stdout
    assert "next: --results-dir" in done.stdout
    assert "the main job cannot run" in done.stdout


def _examination(status: str, missing: tuple[FourminError, ...]) -> Examination:
    presets = (PresetCheck("digits", "", missing), PresetCheck("other", "", (FourminError("x"),)))
    return Examination((Check("topic", status, "message"),), presets)


def test_only_what_the_main_job_needs_decides() -> None:
    assert _examination(OK, ()).ok
    assert _examination(WARNING, ()).ok
    assert not _examination(MISSING, ()).ok
    assert not _examination(OK, (FourminError("x"),)).ok


def test_an_installation_that_cannot_train_says_how_it_could(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(software, "installed_version", lambda _: None)
    monkeypatch.setattr("fourmin.campaign.requirements.installed_version", lambda _: None)
    found = examine(tmp_path / "results", None)
    assert not found.ok
    stack = next(check for check in found.checks if check.topic == "training stack")
    assert stack.status == MISSING
    assert "torch" in stack.message
    assert "[train]'" in stack.next_step
    assert not any(preset.can_run for preset in found.presets)


def _without(*absent: str) -> Callable[[str], str | None]:
    return lambda name: None if name in absent else "1.0"


@pytest.mark.parametrize("gpus", [0, 2])
def test_without_dali_the_main_job_runs_with_the_other_loader(
    gpus: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As README installs it where there is no GPU: what is said to run must be what runs."""
    for module in ("doctor.software", "campaign.requirements"):
        monkeypatch.setattr(f"fourmin.{module}.installed_version", _without("dali"))
    monkeypatch.setattr("fourmin.doctor.presets.usable_gpus", lambda: gpus)
    monkeypatch.setattr("fourmin.campaign.requirements.usable_gpus", lambda: gpus)
    monkeypatch.setattr(software.Probing, "result", lambda _: StackProbe())
    found = CliRunner().invoke(app, ["doctor", "--results-dir", str(tmp_path / "results")])
    assert found.exit_code == 0, found.stdout
    assert "eager step, --loader torchvision" in found.stdout
    assert found.stdout.rstrip().endswith("the main job can run: fourmin run --loader torchvision")
    assert "not installed: dali" in found.stdout


def test_a_machine_without_gpus_is_not_told_to_install_triton(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(software, "triton_installed", lambda: False)
    for gpus, topics in ((0, ["training stack"]), (1, ["training stack", "fast step"])):
        monkeypatch.setattr(software, "usable_gpus", lambda gpus=gpus: gpus)
        found = [*software.training_stack(StackProbe())]
        assert [check.topic for check in found] == topics


def test_the_loader_that_runs_would_take_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torchvision of another build than torch's installs well, and does not load."""
    monkeypatch.setattr(software, "installed_version", _without("dali"))
    monkeypatch.setattr(software, "_PROBE", "import sys; sys.exit('LOADER does not load')")
    probe = software.Probing().result()
    assert probe is not None
    assert probe.error == "torchvision does not load"
    check = only(software.training_stack(probe))
    assert (check.status, "from one index" in check.next_step) == (MISSING, True)


def test_a_stack_that_cannot_be_imported_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(software, "_PROBE", "raise ImportError('libcudart.so.13: cannot open')")
    probe = software.Probing().result()
    assert probe is not None
    check = next(iter(software.training_stack(probe)))
    assert check.status == MISSING
    assert "libcudart.so.13: cannot open" in check.message


def test_a_stack_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "_PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(software, "_PROBE_SECONDS", 0.2)
    probe = software.Probing().result()
    assert probe is not None
    assert "took more than" in probe.error


def test_torch_that_does_not_see_the_gpus_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "driver_version", lambda: "580.1")
    monkeypatch.setattr(software, "dali_cuda", lambda: "13.0")
    monkeypatch.setattr(software, "usable_gpus", lambda: 2)
    facts = {"cuda": "13.0", "gpus": 0, "cpu_backend": True, "nccl": None}
    driver, nccl = software.cuda(StackProbe(facts))
    assert (driver.status, nccl.status) == (WARNING, WARNING)
    assert "0 of 2 GPUs" in driver.message
    driver, nccl = software.cuda(StackProbe(facts | {"gpus": 2, "nccl": "2.28.9"}))
    assert (driver.status, nccl.message) == (OK, "NCCL 2.28.9")


@pytest.mark.parametrize(
    ("driver", "torch", "dali", "warned"),
    [
        ("13.0", "13.0", "13.0", []),
        ("13.1", "12.8", "12.0", []),
        ("12.8", "13.0", "13.0", ["newer than the driver"]),
        ("13.0", "12.8", "13.0", ["torch and DALI differ"]),
        ("12.4", "12.8", "13.0", ["torch and DALI differ", "newer than the driver"]),
        (None, "13.0", None, []),
    ],
)
def test_cuda_of_driver_torch_and_dali_are_compared(
    monkeypatch: pytest.MonkeyPatch,
    driver: str | None,
    torch: str,
    dali: str | None,
    warned: list[str],
) -> None:
    monkeypatch.setattr(software, "driver_version", lambda: "580.1")
    monkeypatch.setattr(software, "usable_gpus", lambda: 2)
    monkeypatch.setattr(software, "cuda_of_driver", lambda: driver)
    monkeypatch.setattr(software, "dali_cuda", lambda: dali)
    facts = {"cuda": torch, "gpus": 2, "cpu_backend": True, "nccl": "2.28.9"}
    found = [check for check in software.cuda(StackProbe(facts)) if check.status == WARNING]
    assert [check.message.partition(": ")[2].partition(": ")[2] for check in found] == warned
    assert all("train-cuda12" in check.next_step for check in found)


def test_gpus_in_use_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "accelerators", lambda: [H100])
    monkeypatch.setattr(machine, "usable_gpus", lambda: 1)
    monkeypatch.setattr(machine, "busy_gpus", lambda: ["GPU 1: 3 processes, 40.0 GiB in use"])
    check = only(machine.gpus())
    assert check.status == WARNING
    assert "2 x NVIDIA H100" in check.message
    assert "leaves 1 of them" in check.message
    assert "GPU 1: 3 processes" in check.message
    monkeypatch.setattr(machine, "busy_gpus", list)
    assert only(machine.gpus()).status == OK


def test_little_memory_and_little_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_of", lambda _: 1.5)
    check = only(machine.memory(2))
    assert check.status == WARNING
    assert "--procs-per-node 1" in check.next_step
    monkeypatch.setattr(machine, "memory_of", lambda _: 8.0)
    monkeypatch.setattr(machine, "usable_gpus", lambda: 2)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(64 << 20))
    memory, shared = machine.memory(2)
    assert (memory.status, shared.status) == (OK, WARNING)
    assert "/dev/shm" in shared.message


def test_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 9.0, 9.0))
    assert only(machine.processors()).status == OK
    monkeypatch.setattr(os, "getloadavg", lambda: (4096.0, 0.0, 0.0))
    assert only(machine.processors()).status == WARNING


@pytest.mark.parametrize(
    ("state", "status"), [(True, OK), (None, OK), (False, WARNING)], ids=["yes", "unknown", "no"]
)
def test_the_clock(state: bool | None, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_synchronized", lambda: state)
    assert only(machine.clock()).status == status
    monkeypatch.setattr(machine.time, "time", lambda: 1e9)
    assert only(machine.clock()).status == WARNING


def test_the_kernel_says_whether_its_clock_is_kept() -> None:
    assert machine._synchronized() in (True, False, None)


def test_locks_are_tried_from_a_second_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert only(machine.results_folder(tmp_path)).status == OK
    # A file system whose locks exclude nobody: ours takes none.
    monkeypatch.setattr(fcntl, "lockf", lambda *_: None)
    check = only(machine.results_folder(tmp_path))
    assert check.status == WARNING
    assert "two writers" in check.message

    def refused(*_: object) -> None:
        raise OSError(next(iter(machine.UNSUPPORTED)), "no locks")

    monkeypatch.setattr(fcntl, "lockf", refused)
    check = only(machine.results_folder(tmp_path))
    assert check.status == WARNING
    assert "lease file" in check.message
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 20))
    folder, disk = machine.results_folder(tmp_path)
    assert (folder.status, disk.status) == (OK, WARNING)


def test_a_cache_that_cannot_be_written_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fourmin").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check = only(machine.caches())
    assert check.status == MISSING
    assert "XDG_CACHE_HOME" in check.next_step
    assert {one.status for one in machine.keeping()} == {OK}


def test_launchers_that_are_there_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Slurm" not in only(software.launchers()).message
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    assert "Slurm (sbatch)" in only(software.launchers()).message


def test_images_of_another_benchmark_are_said_to_be(tmp_path: Path) -> None:
    digits = ensure_digits()
    found = {preset.name: preset for preset in check_presets(digits)}
    assert found["digits"].can_run
    texts = [one.what for one in found["resnet50-256"].missing]
    assert f"{digits} is not the dataset of benchmark resnet50" in texts
    assert not any("no --data-dir" in str(one) for one in found["resnet50-256"].missing)
    other = tmp_path / "images"
    shutil.copytree(digits, other)
    (other / "manifest.json").unlink(missing_ok=True)
    for path in other.glob("manifest*"):
        path.write_text("nonsense")
    assert all(preset.name for preset in check_presets(other))  # said, not raised


def test_few_open_files_and_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "nowhere.invalid")
    monkeypatch.setattr("resource.getrlimit", lambda _: (600, 4096))
    files, name = machine.limits(64)
    assert (files.topic, files.status) == ("open files", WARNING)
    assert "may open 600 files, and 64 workers need 640" in files.message
    assert (name.topic, name.status) == ("host name", WARNING)
    assert "nowhere.invalid, this host" in name.message
    monkeypatch.setattr("socket.gethostname", lambda: "localhost")
    assert [*machine.limits(44)] == []


@pytest.mark.parametrize(("version", "status"), [("2.29.2", WARNING), ("2.29.3", OK)])
def test_an_nccl_that_is_known_as_bad(
    version: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software, "driver_version", lambda: "595.0")
    monkeypatch.setattr(software, "dali_cuda", lambda: "13.0")
    monkeypatch.setattr(software, "usable_gpus", lambda: 2)
    _, nccl = software.cuda(StackProbe({"cuda": "13.0", "gpus": 2, "nccl": version}))
    assert nccl.status == status
    assert f"NCCL {version}" in nccl.message


def test_nodes_are_named_with_what_is_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Launcher:
        def __init__(self, trials: list[Trial]) -> None:
            self._trials = trials

        def try_nodes(self, configuration: Any) -> list[Trial]:
            asked.append((configuration.preset, configuration.nodes))
            return self._trials

        def close(self) -> None:
            asked.append("closed")

    trials = [Trial(f"n{i}", (), 10.0, 1.0) for i in range(4)]
    trials[2] = Trial("n2", ("the host name x does not resolve",), 10.0, 1.5)

    def checks(trials: list[Trial]) -> list[Check]:
        monkeypatch.setattr("fourmin.doctor.examine.load_launcher", lambda *_: Launcher(trials))
        return [*examine_nodes("digits", 4, "slurm", Placement(), lambda text: None)]

    name, slow, rest = checks(trials)
    assert (name.topic, name.status, name.message) == (
        "node n2", WARNING, "the host name x does not resolve",
    )  # fmt: skip
    assert slow.topic == "node n2"
    assert "all-reduces 50% slower than the median" in slow.message
    assert (rest.status, rest.message) == (OK, "3 of 4 have nothing odd: n0, n1, n3")
    assert asked == [("digits", 4), "closed"]
    with pytest.raises(FourminError, match="launcher slurm reaches no other nodes"):
        checks([])
