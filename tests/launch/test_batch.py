"""What would be submitted: the batch script, the srun line in it, and that no value escapes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from golden import Golden

from fourmin.base.errors import FourminError
from fourmin.launch.sbatch import batch_script, directive
from fourmin.launch.site import Site, parse_site
from fourmin.launch.slurm import srun_command
from fourmin.recipe.presets import load_preset

LARGE = load_preset("resnet50-64k").resolved(8, keep_workers=True)
SMALL = load_preset("digits").with_overrides({"nodes": 4, "device": "cpu"})
SITE = parse_site(
    {
        "slurm": {
            "partition": "gpu",
            "account": "lab",
            "time_limit": "02:00:00",
            "cpus_per_task": 64,
            "cpu_bind": "cores",
            "gpu_bind": "none",
            "modules": ["cuda/13"],
            "setup": ["source /opt/env/activate"],
            "directives": ["--qos=high", "--comment=two words"],
            "srun": ["--mpi=none"],
        },
        "environment": {"NCCL_IB_HCA": "mlx5"},
    },
    "test",
)
HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    'a b\' "c" \\ $HOME',
    "-x\ttouch",
    "&& touch pwned",
    "|touch pwned",
    "\ntouch pwned\n",
    "é☃",
)


def script(arguments: list[str], site: Site = SITE) -> str:
    return batch_script(LARGE, site, arguments, Path("/results/.jobs/x"), Path("/home/ann"))


def test_the_256_node_script_is_as_it_was(golden: Golden) -> None:
    text = script(["/env/bin/python", "-m", "fourmin", "run", "--preset=resnet50-64k"])
    golden.check("resnet50-64k.sbatch", text)


def test_srun_starts_one_process_on_each_node() -> None:
    command = srun_command(LARGE, SITE, ["10.0.0.1", "n1"], "7000")
    line = shlex.join(command).replace(sys.executable, "PYTHON")
    assert line == (
        "srun --nodes=256 --ntasks=256 --ntasks-per-node=1 --overlap --export=ALL --unbuffered "
        "--cpu-bind=cores --cpus-per-task=64 --gpu-bind=none --mpi=none "
        "PYTHON -m fourmin.launch.node 10.0.0.1,n1:7000"
    )


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        (
            "apptainer",
            "apptainer exec --nv --bind=/data:/data --no-home '/images/a b.sif' python3 -m",
        ),
        (
            "enroot",
            "'--container-image=/images/a b.sif' --container-mounts=/data:/data --no-home python3",
        ),
    ],
)
def test_workers_run_in_the_container_that_the_site_names(runtime: str, expected: str) -> None:
    container = {
        "runtime": runtime,
        "image": "/images/a b.sif",
        "mounts": ["/data:/data"],
        "options": ["--no-home"],
    }
    command = srun_command(LARGE, parse_site({"container": container}, "test"), ["n1"], "7000")
    assert expected in shlex.join(command)


def test_without_a_number_of_cores_the_whole_node_is_asked_for() -> None:
    text = batch_script(SMALL, Site(), ["true"], Path("/r"), Path("/"))
    assert "#SBATCH --exclusive\n" in text
    assert "gpus-per-node" not in text


@pytest.mark.parametrize("value", HOSTILE)
def test_arguments_and_environment_reach_the_program_as_they_are(
    value: str, tmp_path: Path
) -> None:
    plain = value.isprintable()
    site = parse_site({"environment": {"FOURMIN_TEST": value}}, "test") if plain else Site()
    show = "import os, sys; print([sys.argv[1:], os.environ.get('FOURMIN_TEST')])"
    text = script([sys.executable, "-c", show, value], site)
    done = subprocess.run(
        ["bash"], input=text, capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout == f"{[[value], value if plain else None]}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", HOSTILE)
def test_a_module_s_name_is_no_shell(value: str, tmp_path: Path) -> None:
    if not value.isprintable():
        with pytest.raises(FourminError):
            parse_site({"slurm": {"modules": [value]}}, "test")
        return
    site = parse_site({"slurm": {"modules": [value]}}, "test")
    text = "module() { printf '%s\\n' \"$2\"; }\n" + script(["true"], site)
    done = subprocess.run(
        ["bash"], input=text, capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout == f"{value}\n"
    assert not list(tmp_path.iterdir())


def test_directives_are_quoted_or_refused() -> None:
    assert directive("--qos=high") == "--qos=high"
    assert directive("--exclusive") == "--exclusive"
    assert directive("-p=gpu") == "-p=gpu"
    assert directive("--comment=a #b") == '--comment="a #b"'
    refused = (
        "--x=a\nrm",
        '--x=a"b',
        "--x=a\\b",
        "--x=\x1b[2J",
        "--a b=c",
        "rm -rf",
        "",
        "--x\n=y",
    )
    for wrong in refused:
        with pytest.raises(FourminError):
            directive(wrong)


def test_a_percent_sign_in_a_folder_is_no_pattern() -> None:
    text = batch_script(SMALL, Site(), ["true"], Path("/r/100%j"), Path("/"))
    assert "#SBATCH --output=/r/100%%j/%j.out\n" in text
