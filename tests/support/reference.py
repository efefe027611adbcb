"""An independent computation, in one process and float64, of how a run of digits begins.

Nothing of the training wing is used but the model's layers and their initial weights: the order
comes from numpy's Philox directly, pixels from Pillow, the loss, the mean gradient over the
workers' shards, the learning rate and LARS from their formulas. So whatever goes wrong between the
files and the update shows in the losses: a wrong shard, label, mean, rate, trust ratio or decay.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from fourmin.datasets.digits import ensure_digits
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest

BATCH = 64
TRAIN_SAMPLES, STEPS_PER_EPOCH = 1437, 22
WARMUP_EPOCHS, BASE_RATE = 2, 16.0
MOMENTUM, DECAY, ETA = 0.9, 5e-5, 0.001


def philox(seed: int, stream: int, epoch: int) -> np.random.Philox:
    """The stream of random words of an epoch."""
    return np.random.Philox(key=np.array([seed, stream], dtype=np.uint64), counter=[0, 0, 0, epoch])


def order(seed: int, epoch: int) -> np.ndarray:
    """The samples of an epoch in the order of training; (1437,)."""
    return np.argsort(philox(seed, 1, epoch).random_raw(TRAIN_SAMPLES), kind="stable")


def augmentation_randoms(seed: int, epoch: int, n: int, k: int) -> np.ndarray:
    """`k` uniform numbers in [0, 1) for each of `n` samples, all from one stream; (n, k)."""
    words = -(-k // 4) * 4
    raw = philox(seed, 2, epoch).random_raw(n * words).reshape(n, words)
    return (raw[:, :k] >> np.uint64(11)) * 2.0**-53


def first_losses(seed: int, steps: int, workers: int) -> list[float]:
    """The mean loss of each of the first steps, no more than an epoch, before its update."""
    from fourmin.training.models import build_model
    from fourmin.training.models.init import initialize

    root = ensure_digits()
    split = Manifest.load(root / MANIFEST_NAME).split("train")
    samples, offsets = order(seed, 1), _moves(seed, 1)
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
    for step in range(steps):
        batch = samples[step * BATCH : (step + 1) * BATCH]
        gradients = {id(p): torch.zeros_like(p) for p in model.parameters()}
        loss_sum = 0.0
        for shard in np.split(batch, workers):
            pixels = np.stack(
                [_pixels(root / "train" / split.paths[i], *offsets[i]) for i in shard]
            )
            labels = torch.tensor([int(Path(split.paths[i]).parts[0]) for i in shard])
            model.zero_grad()
            scores = _logits(model, torch.from_numpy(pixels))
            loss = -torch.log_softmax(scores, 1)[range(len(shard)), labels].mean()
            loss.backward()
            loss_sum += loss.item()
            for p in model.parameters():
                gradients[id(p)] += p.grad / workers
        losses.append(loss_sum / workers)
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


def _moves(seed: int, epoch: int) -> np.ndarray:
    words = philox(seed, 2, epoch).random_raw(TRAIN_SAMPLES * 4).reshape(-1, 4)[:, :2]
    return np.floor((words >> np.uint64(11)) * 2.0**-53 * 3).astype(int) - 1


def _pixels(path: Path, dy: int, dx: int) -> np.ndarray:
    grey = np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("L"), dtype=np.float64)
    window = np.pad(grey, 1)[1 + dy : 17 + dy, 1 + dx : 17 + dx]
    return np.broadcast_to((window - 78.0) / 96.0, (3, 16, 16))


def _logits(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The layers of ResNet-8 in double precision; the model's own head computes in FP32."""
    x = torch.relu(model.bn1(model.conv1(x)))
    for stage in (model.layer1, model.layer2, model.layer3):
        x = stage(x)
    return x.mean(dim=(2, 3)) @ model.fc.weight.T + model.fc.bias
