"""A loader of small images, as several files of tests build it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fourmin.datasets.manifest import Manifest
from fourmin.training.data import build_loader
from fourmin.training.data.loader import Loader

MEAN, STD = (120.0, 110.0, 100.0), (60.0, 50.0, 70.0)


def make_loader(name: str, folder: Path, manifest: Manifest, **changes: Any) -> Loader:
    """Batches of 8, cut to 32x32 at random, but for what `changes` says."""
    settings = {
        "manifest": manifest,
        "data_dir": folder,
        "seed": 11,
        "global_batch_size": 8,
        "image_size": 32,
        "eval_resize": 36,
        "augmentation": "random-resized-crop",
        "mean": MEAN,
        "std": STD,
    }
    return build_loader(name, **(settings | changes))
