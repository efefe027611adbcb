"""Which launcher is taken, and what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from fourmin.base.errors import FourminError
from fourmin.launch import choose_launcher, load_launcher
from fourmin.launch.registry import LAUNCHER_NAMES


@pytest.fixture
def sbatch(tmp_path: Path) -> dict[str, str]:
    """An environment with sbatch on its path, outside any allocation."""
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return {"PATH": str(tmp_path)}


def test_auto_is_this_machine_for_one_node_and_where_there_is_no_cluster(
    sbatch: dict[str, str],
) -> None:
    assert choose_launcher("auto", 1, sbatch).name == "local"
    assert choose_launcher("auto", 4, {"PATH": "/nowhere"}).name == "local"


def test_auto_submits_to_slurm_for_more_nodes(sbatch: dict[str, str]) -> None:
    choice = choose_launcher("auto", 4, sbatch)
    assert (choice.name, choice.submits) == ("slurm", True)
    assert choice.reason == "4 nodes, and sbatch is here"


def test_inside_an_allocation_it_is_used_and_nothing_is_submitted(sbatch: dict[str, str]) -> None:
    inside = {**sbatch, "SLURM_JOB_ID": "17"}
    for wanted in ("auto", "slurm"):
        choice = choose_launcher(wanted, 4, inside)
        assert (choice.name, choice.submits) == ("slurm", False)
    assert choose_launcher("auto", 4, inside).reason == "inside Slurm job 17"
    assert choose_launcher("local", 1, inside).name == "local"


def test_an_unknown_launcher_lists_the_known_ones() -> None:
    for attempt in (lambda: choose_launcher("ssh", 1), lambda: load_launcher("ssh")):
        with pytest.raises(FourminError, match="no launcher 'ssh'") as caught:
            attempt()
        assert all(name in caught.value.next_step for name in LAUNCHER_NAMES)
