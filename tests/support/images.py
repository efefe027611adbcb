"""Small image trees that tests make for themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def make_tree(
    root: Path, *, classes: int = 2, train: int = 16, val: int = 4, side: int = 96
) -> Path:
    """`train` and `val` JPEGs in each of `classes` classes, of a few sizes, all different."""
    random = np.random.default_rng(0)
    for split, count in (("train", train), ("val", val)):
        for label in range(classes):
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True)
            for index in range(count):
                height, width = side + 8 * (index % 3), side + 16 * (index % 2)
                noise = random.integers(0, 160, (height // 8 + 1, width // 8 + 1, 3))
                pixels = np.kron(noise, np.ones((8, 8, 1)))[:height, :width] + 40 * label
                image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                image.save(folder / f"{index}.jpg", quality=90)
    return root
