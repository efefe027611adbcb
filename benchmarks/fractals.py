"""What can be learnt of the dataset `fractals`, and what not: shortcuts, difficulty, a look at it.

    python benchmarks/fractals.py shortcuts           # logistic regression; no GPU
    python benchmarks/fractals.py learn --jitter 0.25 # ResNet-50 on a GPU: sets JITTER
    python benchmarks/fractals.py sheet OUT.png

Images are drawn as they are needed, by a process a core, and read from the JPEG as a run reads it.
"""

from __future__ import annotations

import argparse
import io
import math
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fourmin.datasets.fractals import JITTER, draw, encode

Arrays = tuple[np.ndarray, ...]
SIDE = 16
"""Pixels of a thumbnail's side."""
RINGS = 64


def jpeg(which: tuple[int, str, int], jitter: float) -> tuple[bytes, Image.Image]:
    data = encode(draw(*which, jitter=jitter))
    return data, Image.open(io.BytesIO(data)).convert("RGB")


def features(which: tuple[int, str, int], jitter: float) -> Arrays:
    """Of an image its thumbnail, and what tells nothing of where anything is: the logarithms of
    radial power, the histogram of each colour, size of the file and of the image.
    """
    data, image = jpeg(which, jitter)
    thumbnail = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32).ravel()
    width, height = image.size
    side = 256
    left, top = (width - side) // 2, (height - side) // 2
    grey = np.asarray(image.convert("L").crop((left, top, left + side, top + side)), np.float64)
    power = np.abs(np.fft.fft2(grey - grey.mean())) ** 2
    at = np.fft.fftfreq(side) * side
    ring = np.minimum(np.hypot(at[:, None], at) * 2 * RINGS / side, RINGS - 1).astype(int)
    radial = np.bincount(ring.ravel(), power.ravel()) / np.bincount(ring.ravel())
    colours = np.asarray(image.histogram(), np.float64).reshape(3, 32, 8).sum(2) / (width * height)
    sizes = [math.log(len(data)), width, height]
    return thumbnail, np.concatenate([np.log(radial + 1), colours.ravel(), sizes])


def square(which: tuple[int, str, int], jitter: float, side: int) -> np.ndarray:
    """The middle of an image, (side, side, 3)."""
    _, image = jpeg(which, jitter)
    short = min(image.size)
    left, top = (image.width - short) // 2, (image.height - short) // 2
    box = (left, top, left + short, top + short)
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box))


def drawn(
    of: Callable[[tuple[int, str, int]], Any], classes: int, split: str, each: int
) -> tuple[list[Any], np.ndarray]:
    """`of` every image, and the labels."""
    which = [(label, split, index) for label in range(classes) for index in range(each)]
    with get_context("spawn").Pool() as pool:
        return pool.map(of, which, chunksize=50), np.repeat(np.arange(classes), each)


def shortcuts(given: argparse.Namespace) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    of = partial(features, jitter=given.jitter)
    sets = [
        drawn(of, given.classes, split, each)
        for split, each in (("train", given.train), ("val", given.val))
    ]
    print(
        f"{given.classes} classes, {given.train} and {given.val} images, chance {1 / given.classes}"
    )
    for number, name in enumerate((f"{SIDE}x{SIDE} thumbnails", "spectrum, histogram, sizes")):
        (train, labels), (val, truth) = [(np.stack([x[number] for x in s]), y) for s, y in sets]
        scaler = StandardScaler().fit(train)
        for strength in (1e-4, 1e-3, 1e-2, 1e-1):
            model = LogisticRegression(C=strength, max_iter=500)
            model.fit(scaler.transform(train), labels)
            right = model.score(scaler.transform(val), truth)
            print(f"{name}, C = {strength}: {right:.3f}", flush=True)


def small(num_classes: int) -> Any:
    """A network of seven convolutions, for a CPU and images of 64x64."""
    from torch import nn

    widths = ((3, 24, 2), (24, 48, 2), (48, 64, 1), (64, 96, 2), (96, 128, 1), (128, 192, 2))
    parts: list[nn.Module] = []
    for before, after, stride in (*widths, (192, 256, 1)):
        convolution = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        parts += [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, num_classes))


def learn(given: argparse.Namespace) -> None:
    import torch
    import torch.nn.functional as F
    import torchvision

    began = time.perf_counter()
    of = partial(square, jitter=given.jitter, side=round(given.pixels / 0.875))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tensors = []
    for split, each in (("train", given.train), ("val", given.val)):
        images, labels = drawn(of, given.classes, split, each)
        stacked = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
        tensors += [stacked.to(device), torch.from_numpy(labels).to(device)]
    train, labels, val, truth = tensors
    print(f"{len(train) + len(val)} images in {time.perf_counter() - began:.1f} s", flush=True)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = getattr(torchvision.models, given.model, small)(num_classes=given.classes)
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), given.lr, momentum=0.9, nesterov=True, weight_decay=5e-5
    )
    steps = given.epochs * (len(train) // given.batch)
    warmup = max(1, steps // 8)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(step / warmup, (1 + math.cos(math.pi * min(step / steps, 1))) / 2),
    )

    def cut(images: torch.Tensor, least: float, most: float) -> torch.Tensor:
        """A part of each image with so much of its area: the middle, or where it is trained with,
        anywhere, stretched and mirrored at random.
        """
        random = torch.rand(5, len(images), device=device) if model.training else None
        moved, stretch, mirror, scale = 0.0, 0.0, 1.0, most
        if random is not None:
            moved, stretch = 2 * random[:2].T - 1, 0.29 * (random[2] - 0.5)
            mirror, scale = 1 - 2 * (random[3] < 0.5).float(), least + (most - least) * random[4]
        root = torch.as_tensor(scale, device=device).sqrt().expand(len(images))
        by = torch.as_tensor(stretch, device=device).exp()
        half = torch.stack([root * by, root / by], 1).clamp_(max=1)
        matrix = torch.zeros(len(images), 2, 3, device=device)
        matrix[:, 0, 0], matrix[:, 1, 1] = half[:, 0] * mirror, half[:, 1]
        matrix[:, :, 2] = (1 - half) * moved
        grid = F.affine_grid(matrix, [len(images), 3, given.pixels, given.pixels], False)
        return F.grid_sample(images.float().sub_(128).div_(64), grid, align_corners=False)

    half_precision = torch.autocast(device.type, torch.bfloat16, device.type == "cuda")
    for epoch in range(given.epochs):
        model.train()
        order = torch.randperm(len(train), device=device)
        for at in range(0, len(train) - given.batch + 1, given.batch):
            chosen = order[at : at + given.batch]
            with half_precision:
                found = model(cut(train[chosen], 0.25, 1))
                loss = F.cross_entropy(found.float(), labels[chosen], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        model.eval()
        right = 0
        with torch.no_grad(), half_precision:
            for images, these in zip(val.split(250), truth.split(250), strict=True):
                right += int((model(cut(images, 1, 0.875**2)).argmax(1) == these).sum())
        passed = time.perf_counter() - began
        print(f"epoch {epoch + 1}: accuracy {right / len(val):.4f}, {passed:.1f} s", flush=True)


def sheet(given: argparse.Namespace) -> None:
    """Eight images of each of the first classes, a row each."""
    side, across = 120, 8
    whole = Image.new("RGB", (across * side, given.classes * side), "white")
    for label in range(given.classes):
        for index in range(across):
            _, image = jpeg((label, "train", index), given.jitter)
            image.thumbnail((side - 4, side - 4))
            left, top = ((side - size) // 2 for size in image.size)
            whole.paste(image, (index * side + left, label * side + top))
    whole.save(given.output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(required=True)
    for what in (shortcuts, learn, sheet):
        kind = kinds.add_parser(what.__name__)
        kind.set_defaults(what=what)
        kind.add_argument("--jitter", type=float, default=JITTER)
        if what is sheet:
            kind.add_argument("output", type=Path)
            kind.add_argument("--classes", type=int, default=10)
            continue
        kind.add_argument("--classes", type=int, default=100)
        kind.add_argument("--train", type=int, default=60 if what is shortcuts else 300)
        kind.add_argument("--val", type=int, default=10 if what is shortcuts else 50)
        if what is learn:
            kind.add_argument("--model", default="resnet50", help="of torchvision, or small")
            kind.add_argument("--pixels", type=int, default=224)
            kind.add_argument("--epochs", type=int, default=8)
            kind.add_argument("--batch", type=int, default=256)
            kind.add_argument("--lr", type=float, default=0.6)
    given = parser.parse_args()
    given.what(given)


if __name__ == "__main__":
    main()
