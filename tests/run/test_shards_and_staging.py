"""A run from shards, and one from a staged copy, beside the same run from the tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import PRACTICE, fourmin

from fourmin.datasets.digits import ensure_digits


def run(data: Path, results: Path, *options: str) -> tuple[dict, list[dict]]:
    """The result and the log's records of eight steps with a fixed seed."""
    process = fourmin(
        "run", *PRACTICE, "--runs", "1", "--seed", "7", "--max-steps", "8", "--precision", "fp32",
        "--data-dir", str(data), "--results-dir", str(results), "--json", *options, state=results,
        timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1])["valid"] is True
    (folder,) = results.glob("*/run-1")
    log = (folder / "events.log").read_text().splitlines()
    records = [json.loads(line.partition(" ")[2]) for line in log]
    return json.loads((folder / "result.json").read_bytes()), records


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_shards_and_a_staged_copy_train_as_the_tree_does(tmp_path: Path) -> None:
    tree = ensure_digits(tmp_path / "cache")
    shards, stage = tmp_path / "shards", tmp_path / "stage"
    written = fourmin(
        "data", "prepare", str(tree), str(shards), "--shard-size", "1", state=tmp_path
    )
    assert written.returncode == 0, written.stderr
    expected, _ = run(tree, tmp_path / "a")
    from_shards, records = run(shards, tmp_path / "b")
    assert not [record for record in records if record["key"].startswith("staging")]
    from_stage, records = run(shards, tmp_path / "c", "--stage", str(stage))
    for name in ("data_order_digest", "initial_weights_digest", "dataset"):
        assert from_shards[name] == from_stage[name] == expected[name]
    assert from_shards["first_losses"] == pytest.approx(expected["first_losses"], rel=1e-6)
    assert from_stage["first_losses"] == pytest.approx(expected["first_losses"], rel=1e-6)
    keys = [record["key"] for record in records]
    start, stop = keys.index("staging_start"), keys.index("staging_stop")
    assert keys.index("run_start") < start < stop < keys.index("epoch_start")
    metadata = records[stop]["metadata"]
    assert metadata["files"] == len(list(shards.iterdir()))
    assert metadata["bytes"] == sum(path.stat().st_size for path in shards.iterdir())
    assert list(stage.iterdir()) == []
