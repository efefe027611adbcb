"""The first steps of a real run against an independent single-process float64 computation.

Nothing of the training wing is used for the expectation but the model's layers: the order comes
from numpy's Philox directly, pixels from Pillow, the loss, the mean gradient over the workers'
shards, the learning rate and LARS from their formulas. So whatever goes wrong between the files
and the update shows in the losses: a wrong shard, label, mean, rate, trust ratio or decay.
"""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from fourmin.datasets.digits import ensure_digits
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest

STEPS, WORKERS, BATCH = 8, 2, 64
TRAIN_SAMPLES, STEPS_PER_EPOCH, WARMUP_EPOCHS, BASE_RATE = 1437, 22, 2, 16.0
MOMENTUM, DECAY, ETA = 0.9, 5e-5, 0.001


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("oracle")
    command = [sys.executable, "-m", "fourmin", "run", "--practice", "--runs", "1", "--quiet"]
    command += ["--max-steps", str(STEPS), "--precision", "fp32", "--allreduce", "ring"]
    command += ["--results-dir", str(folder), "--set", "device=cpu", "--procs-per-node", "2"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (path,) = folder.glob("*/run-1/result.json")
    return json.loads(path.read_bytes())


def philox(seed: int, stream: int, epoch: int) -> np.random.Philox:
    return np.random.Philox(key=np.array([seed, stream], dtype=np.uint64), counter=[0, 0, 0, epoch])


def moves(seed: int, epoch: int) -> np.ndarray:
    words = philox(seed, 2, epoch).random_raw(TRAIN_SAMPLES * 4).reshape(-1, 4)[:, :2]
    return np.floor((words >> np.uint64(11)) * 2.0**-53 * 3).astype(int) - 1


def shifted_pixels(path: Path, dy: int, dx: int) -> np.ndarray:
    grey = np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("L"), dtype=np.float64)
    padded = np.pad(grey, 1)
    window = padded[1 + dy : 17 + dy, 1 + dx : 17 + dx]
    return np.broadcast_to((window - 78.0) / 96.0, (3, 16, 16))


def float64_logits(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The layers of ResNet-8 in double precision; the model's own head computes in FP32."""
    x = torch.relu(model.bn1(model.conv1(x)))
    for stage in (model.layer1, model.layer2, model.layer3):
        x = stage(x)
    return x.mean(dim=(2, 3)) @ model.fc.weight.T + model.fc.bias


def reference_losses(seed: int) -> list[float]:
    from fourmin.training.models import build_model
    from fourmin.training.models.init import initialize

    root = ensure_digits()
    split = Manifest.load(root / MANIFEST_NAME).split("train")
    order = np.argsort(philox(seed, 1, 1).random_raw(TRAIN_SAMPLES), kind="stable")
    offsets = moves(seed, 1)
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    initialize(model, seed, "he", False)
    model = model.double()
    plain = {
        id(p)
        for m in model.modules()
        for name, p in m.named_parameters(recurse=False)
        if isinstance(m, nn.BatchNorm2d) or name == "bias"
    }
    velocity = {id(p): torch.zeros_like(p) for p in model.parameters()}
    losses = []
    for step in range(STEPS):
        batch = order[step * BATCH : (step + 1) * BATCH]
        gradients = {id(p): torch.zeros_like(p) for p in model.parameters()}
        loss_sum = 0.0
        for shard in np.split(batch, WORKERS):
            pixels = np.stack(
                [shifted_pixels(root / "train" / split.paths[i], *offsets[i]) for i in shard]
            )
            labels = torch.tensor([int(Path(split.paths[i]).parts[0]) for i in shard])
            model.zero_grad()
            scores = float64_logits(model, torch.from_numpy(pixels))
            chosen = torch.log_softmax(scores, 1)[range(len(shard)), labels]
            loss = -chosen.mean()
            loss.backward()
            loss_sum += loss.item()
            for p in model.parameters():
                gradients[id(p)] += p.grad / WORKERS
        losses.append(loss_sum / WORKERS)
        rate = BASE_RATE * step / (WARMUP_EPOCHS * STEPS_PER_EPOCH)
        with torch.no_grad():
            for p in model.parameters():
                g, v = gradients[id(p)], velocity[id(p)]
                trust = 1.0
                if id(p) not in plain:
                    w_norm, g_norm = p.norm().item(), g.norm().item()
                    trust = ETA * w_norm / (g_norm + DECAY * w_norm)
                    g = g + DECAY * p
                v.mul_(MOMENTUM).add_(g, alpha=rate * trust)
                p.sub_(v)
    return losses


def test_losses_of_the_first_steps_equal_an_independent_float64_computation(result: dict) -> None:
    expected = reference_losses(result["seed"])
    assert len(expected) == STEPS
    assert result["first_losses"] == pytest.approx(expected, rel=1e-4)
    # The oracle must be able to tell: the steps really change the loss.
    assert max(abs(a - b) for a, b in pairwise(expected)) > 1e-3


def test_the_data_order_digest_is_that_of_the_seed(result: dict) -> None:
    import hashlib

    order = np.argsort(philox(result["seed"], 1, 1).random_raw(TRAIN_SAMPLES), kind="stable")
    consumed = order[: STEPS * BATCH].astype("<i8")
    assert result["data_order_digest"] == hashlib.sha256(consumed.tobytes()).hexdigest()
    assert math.isclose(result["quality"] * 360, round(result["quality"] * 360), abs_tol=1e-9)
