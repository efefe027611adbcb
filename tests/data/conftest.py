"""A small tree of generated photographs, in every kind that a loader meets."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fourmin.datasets.check import check_tree
from fourmin.datasets.manifest import Manifest

CLASSES = ("ant", "bee", "cat")
KINDS = ("rgb", "rgb", "grey", "cmyk", "png", "exif")


def photograph(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Smooth coloured noise: like a photograph, it changes little from pixel to pixel."""
    small = rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "png":
        image.save(out, "PNG")
    elif kind == "exif":
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(out, "JPEG", quality=95, exif=exif)
    else:
        mode = {"grey": "L", "cmyk": "CMYK"}.get(kind, "RGB")
        image.convert(mode).save(out, "JPEG", quality=95)
    return out.getvalue()


@pytest.fixture(scope="session")
def photo_tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """36 training and 15 validation images of 40 to 90 pixels a side, with their manifest."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(3)
    for split, count in (("train", 12), ("val", 5)):
        for name in CLASSES:
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                width, height = (int(side) for side in rng.integers(40, 91, 2))
                kind = KINDS[number % len(KINDS)]
                data = encode(photograph(rng, width, height), kind)
                (folder / f"{number}.JPEG").write_bytes(data)
    report = check_tree(root, workers=1)
    assert report.manifest is not None, report.problems
    return root, report.manifest
