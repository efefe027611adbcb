"""The site file: what it may say, what goes over it, and what is refused with its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from fourmin.base.errors import FourminError
from fourmin.launch.site import Site, load_site, parse_site
from fourmin.launch.slurm import SlurmSite

WHOLE = """
[slurm]
partition = "gpu"
account = "lab"
time_limit = "02:00:00"
gpus_per_node = 8
cpus_per_task = 64
cpu_bind = "cores"
gpu_bind = "none"
modules = ["cuda/13", "python/3.11"]
setup = ["source /opt/env/activate"]
directives = ["--qos=high"]
srun = ["--mpi=none"]

[container]
runtime = "apptainer"
image = "/images/fourmin.sif"
mounts = ["/data:/data"]

[environment]
NCCL_IB_HCA = "mlx5"
"""


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(WHOLE)
    site = load_site(tmp_path / "site.toml")
    assert site.section(SlurmSite).partition == "gpu"
    assert site.section(SlurmSite).modules == ("cuda/13", "python/3.11")
    assert site.container.mounts == ("/data:/data",)
    assert site.environment == {"NCCL_IB_HCA": "mlx5"}


def test_options_go_over_the_file_and_directives_are_added(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(WHOLE)
    site = load_site(tmp_path / "site.toml")
    changed = site.over(
        "slurm", {"partition": "debug", "account": None, "directives": ["--reservation=r"]}
    )
    assert changed.section(SlurmSite).partition == "debug"
    assert changed.section(SlurmSite).account == "lab"
    assert changed.section(SlurmSite).directives == ("--qos=high", "--reservation=r")
    assert site.over("slurm", {"directives": None}) == site
    for launcher in ("local", "kubernetes"):
        with pytest.raises(FourminError, match=f"launcher {launcher} has no use for --partition"):
            site.over(launcher, {"partition": "debug"})


def test_the_file_is_found_by_option_by_variable_and_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option", "variable"):
        (tmp_path / name).write_text(f'[slurm]\npartition = "{name}"\n')
    home = tmp_path / "config" / "fourmin"
    home.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("FOURMIN_SITE", raising=False)
    assert load_site(None) == Site()
    (home / "site.toml").write_text('[slurm]\npartition = "home"\n')
    assert load_site(None).section(SlurmSite).partition == "home"
    monkeypatch.setenv("FOURMIN_SITE", str(tmp_path / "variable"))
    assert load_site(None).section(SlurmSite).partition == "variable"
    assert load_site(tmp_path / "option").section(SlurmSite).partition == "option"
    with pytest.raises(FourminError, match="no site file"):
        load_site(tmp_path / "missing")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[slrum]\npartition = "x"', r"\[slrum\]"),
        ('[slurm]\npartitoin = "x"', "slurm.partitoin"),
        ("[slurm]\npartition = 3", "slurm.partition"),
        ('[slurm]\ngpus_per_node = "8"', "slurm.gpus_per_node"),
        ("[slurm]\ngpus_per_node = true", "slurm.gpus_per_node"),
        ('[slurm]\nmodules = "cuda"', "slurm.modules"),
        ('[slurm]\naccount = "a\\nb"', "slurm.account"),
        ('[slurm]\nsetup = ["a\\u0000b"]', "slurm.setup"),
        ('[environment]\n"A B" = "x"', "environment.A B"),
        ("[environment]\nA = 1", "environment.A"),
        ('[container]\nruntime = "docker"\nimage = "x"', "container.runtime"),
        ('[container]\nimage = "x"', "container"),
        ("slurm = 1", "slurm"),
    ],
)
def test_what_it_cannot_mean_is_refused_by_name(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(FourminError, match=f"{place} in the site file"):
        load_site(path)


def test_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text("partition: gpu\n")
    with pytest.raises(FourminError, match="cannot be read"):
        load_site(tmp_path / "site.toml")


def test_an_empty_file_says_nothing() -> None:
    assert parse_site({}, "x") == Site()
