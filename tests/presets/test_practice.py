"""The ImageNet presets' whole path on a few made photographs, two workers on the CPU."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("nvidia.dali")
pytest.importorskip("PIL")

TRAIN, VAL = 16, 4


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """40 JPEG files in 2 classes, with their manifest."""
    from PIL import Image

    from fourmin.datasets.check import check_tree

    folder = tmp_path_factory.mktemp("photographs")
    for split, count in (("train", TRAIN), ("val", VAL)):
        for label, name in enumerate(("bright", "dark")):
            target = folder / split / name
            target.mkdir(parents=True)
            for index in range(count):
                low = bytes(
                    (i * (7 + index) + len(split)) % 128 + 127 * (1 - label) for i in range(243)
                )
                small = Image.frombytes("RGB", (9, 9), low)
                small.resize((300 + index, 260)).save(target / f"{index}.jpg", quality=85)
    assert check_tree(folder, 1).ok
    return folder


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("preset", ["resnet50-256", "alexnet-512"])
def test_two_steps_and_an_evaluation(preset, photographs, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fourmin", "run", "--preset", preset, "--practice", "--runs", "1",
         "--max-steps", "2", "--set", "global_batch_size=8", "--procs-per-node", "2",
         "--set", "device=cpu", "--data-dir", str(photographs), "--quiet"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = tmp_path.glob("results/*/run-1/events.log")
    records = [json.loads(line.split(" ", 1)[1]) for line in log.read_text().splitlines()]
    values = {record["key"]: record for record in records}
    assert len(values["step_loss"]["value"]) == 2
    assert all(math.isfinite(loss) for loss in values["step_loss"]["value"])
    assert values["eval_accuracy"]["metadata"]["samples_count"] == 2 * VAL
    assert values["global_batch_size"]["value"] == 8
