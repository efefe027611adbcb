"""Sixteen nodes of one worker each, all on this machine, through the real launcher."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from processes import environment

from fourmin.recipe.allreduces import NAMES

pytestmark = pytest.mark.slow

NODES = 16
ROOT = Path(__file__).resolve().parents[2]


def test_every_all_reduce_trains_the_same_weights_on_all_nodes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/fake_nodes.py"), "--nodes", str(NODES)],
        capture_output=True, text=True, check=False, timeout=900, env=environment(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["nodes"] == NODES
    assert set(found["algorithms"]) == set(NAMES)
    for name, one in found["algorithms"].items():
        assert one["ranks_bit_equal"], name
        assert 0 <= one["largest_difference_from_native"] <= 1e-5, name
        # A rank that is left out of a sum would be seen in it.
        assert one["largest_change_in_training"] > 0.002, name
    # An order of sums of its own shows in the last bits, so that the others were really run.
    assert found["algorithms"]["ring"]["largest_difference_from_native"] > 0


def test_a_run_of_16_nodes_is_whole_and_valid(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    variables = {**environment(tmp_path), "FOURMIN_TOKEN": "token"}
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "fourmin.launch.node", f"127.0.0.1:{port}",
             "--index", str(index), "--name", f"fake{index}"],
            env=variables, stderr=subprocess.PIPE, text=True,
        )
        for index in range(1, NODES)
    ]  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fourmin", "run", "--launcher", "torchrun", "--nodes",
             str(NODES), "--procs-per-node", "1", "--set", "device=cpu", "--practice", "--runs",
             "1", "--max-steps", "4", "--address", f"127.0.0.1:{port}", "--allreduce", "torus",
             "--group-size", "4", "--timeout", "collective=600", "--results-dir",
             str(tmp_path / "results")],
            env=variables, capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "checked: valid" in done.stdout
        assert [process.wait(30) for process in nodes] == [0] * (NODES - 1)
    finally:
        for process in nodes:
            process.kill()
            process.communicate()
    (campaign,) = (tmp_path / "results").glob("practice-digits-*")
    result = json.loads((campaign / "run-1" / "result.json").read_bytes())
    assert result["configuration"]["nodes"] == NODES
    assert len(result["clocks"]["node_offset_ms"]) == NODES
    assert len(result["clocks"]["rank_wait_ms_mean"]) == NODES
    assert os.listdir(tmp_path / "results") == [campaign.name]
