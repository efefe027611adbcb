"""A run with a tuning file: the table is registered, and the log says what it did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import PRACTICE, fourmin


@pytest.mark.slow
def test_a_run_takes_the_table_and_logs_what_it_did(tmp_path: Path) -> None:
    tuning = tmp_path / "tuning.json"
    tuning.write_text(
        json.dumps(
            {
                "tuning": ["0:torus", "100000:halving-doubling"],
                "hybrid_large": "torus",
                "hybrid_thresholds": {"torus": 0},
                "workers": 2,
                "workers_per_node": 2,
                "group_size": 0,
                "device": "cpu",
            }
        )
    )
    root = tmp_path / "results"
    done = fourmin(
        "run", *PRACTICE, "--runs", "1", "--max-steps", "24", "--tuning", str(tuning),
        "--fusion-threshold", "65536", "--results-dir", str(root), state=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert fourmin("validate", str(root), state=tmp_path).returncode == 0
    (campaign,) = root.glob("*/campaign.json")
    configuration = json.loads(campaign.read_bytes())["configuration"]
    assert configuration["allreduce"] == "tuned"
    assert configuration["tuning"] == ["0:torus", "100000:halving-doubling"]
    result = json.loads((campaign.parent / "run-1" / "result.json").read_bytes())
    said = result["communication"]
    expected = ["halving-doubling" if size >= 100_000 else "torus" for size in said["bucket_bytes"]]
    assert said["algorithms"] == expected
    assert {"torus", "halving-doubling"} == set(expected)
    assert said["buckets"] == len(said["bucket_bytes"])
    assert said["bytes"] == 24 * sum(said["bucket_bytes"])
    assert 0 < said["exposed_ms_median"] <= said["exposed_ms_p95"]
    assert 0 < said["skew_ms_median"] <= said["skew_ms_p95"]
