"""Reading a manifest of ImageNet's size, and the first batch of an epoch beside one in its middle.

    python benchmarks/epoch_boundary.py [--epochs E] [--step-ms MS] [--workers W]

Asks for neither ImageNet nor a GPU. The manifest lists 1,281,167 and 50,000 images, all of which
are some generated photographs on the disk. One of 2,048 workers goes through epochs of 19 steps
with a global batch of 65,536; a step is a pause, in which the processor is the loader's.
"""

from __future__ import annotations

import argparse
import io
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image

from fourmin.datasets.manifest import _LAST, MANIFEST_NAME, SPLITS, ImageRow, Manifest
from fourmin.datasets.manifest_image import map_manifest, share_manifest
from fourmin.training.data import build_loader
from fourmin.training.data.loader import READ_AHEAD
from fourmin.training.data.source import TreeSource

IMAGES = {"train": 1_281_167, "val": 50_000}
CLASSES = 1000
FILES = 256
SIDE = 160
WORLD, BATCH = 2048, 65_536
WORKER = """
import sys, time
from pathlib import Path
from fourmin.datasets.manifest_image import map_manifest
rank, workers = int(sys.argv[2]), int(sys.argv[3])
def pss():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
before = pss()
print(flush=True); sys.stdin.readline()
began, spent = time.monotonic(), time.process_time()
manifest = map_manifest(Path(sys.argv[1]), rank, workers)
facts = manifest.facts()
took, spent = time.monotonic() - began, time.process_time() - spent
for name in ("train", "val"):
    split = manifest.split(name)
    for i in range(rank, len(split), workers): split.paths[i], split.sizes[i]
    sum(split.widths), sum(split.heights), sum(split.labels)
print(flush=True); sys.stdin.readline()
print(took, spent, (pss() - before) / 1024, flush=True); sys.stdin.readline()
"""


class FewFiles(TreeSource):
    """Every image of the manifest is one of FILES files."""

    def name_of(self, split: object, index: int) -> str:
        return f"{self.data_dir}/{index % FILES}.jpg"


def write_images(folder: Path) -> list[int]:
    """FILES photographs of SIDE pixels, all of one size in bytes; their sizes."""
    rng = np.random.default_rng(1)
    encoded = []
    for _ in range(FILES):
        small = Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        out = io.BytesIO()
        small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
        encoded.append(out.getvalue())
    for number, data in enumerate(encoded):
        (folder / f"{number}.jpg").write_bytes(data)
    return [len(data) for data in encoded]


def write_manifest(path: Path, sizes: list[int]) -> None:
    """Names as ImageNet has them. Sample i is file i modulo FILES."""
    source = random.Random(1)
    rows = []
    for name in SPLITS:
        for i in range(IMAGES[name]):
            label = i * CLASSES // IMAGES[name]
            folder = f"n{10_000_000 + 37 * label:08d}"
            file = f"{folder}_{i:07d}" if name == "train" else f"ILSVRC2012_val_{i:08d}"
            size, digest = sizes[i % FILES], source.randbytes(32)
            rows.append(ImageRow(name, f"{folder}/{file}.JPEG", size, digest, SIDE, SIDE))
    Manifest.from_rows(rows).write(path)


@contextmanager
def timed(what: str) -> Iterator[None]:
    wall, cpu = time.monotonic(), time.process_time()
    yield
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    print(f"{what}: {wall:.2f} s, {cpu:.2f} s of a processor")


def measure_manifest(path: Path, folder: Path, workers: int) -> None:
    print(f"a manifest of {path.stat().st_size / 1e6:.0f} MB")
    _LAST.clear()
    with timed("a node's first run: parse, digest and write the image"):
        share_manifest(path, folder / "image")
    with timed("its next runs and restarts: digest and write the image"):
        share_manifest(path, folder / "image")
    copy = (folder / "image").stat().st_size / (1 << 20)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder / "image"), str(rank), str(workers)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(workers)
    ]  # fmt: skip

    def all_go() -> list[str]:
        said = [process.stdout.readline() for process in processes if process.stdout]
        for process in processes:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        return said

    all_go()
    all_go()
    told = [tuple(map(float, line.split())) for line in all_go()]
    for process in processes:
        process.wait(60)
    took, spent, held = zip(*told, strict=True)
    print(
        f"{workers} workers, between init_start and init_stop: {max(took):.2f} s, "
        f"{sum(spent):.2f} s of a processor together; they hold {sum(held):.0f} MiB (PSS), "
        f"the image is {copy:.0f}"
    )


def measure_boundary(name: str, manifest: Manifest, folder: Path, steps: int | None) -> None:
    """Waits of one worker for its batches; `steps`: epochs in a row, None: each by itself."""
    pause, epochs = OPTIONS.step_ms / 1000, OPTIONS.epochs
    opened = "fourmin.training.data.loader.open_source"
    with mock.patch(opened, return_value=FewFiles(folder)):
        loader = build_loader(
            name, manifest=manifest, data_dir=folder, seed=1, global_batch_size=BATCH, rank=0,
            world_size=WORLD, threads=2, image_size=128, eval_resize=128, steps=steps,
            augmentation="random-resized-crop", mean=(120.0,) * 3, std=(60.0,) * 3,
        )  # fmt: skip
    first, middle, evaluation = [], [], []
    with loader:
        for epoch in range(1, epochs + 1):
            waits = []
            batches = loader.train_epoch(epoch)
            for step in range(loader.steps_of(1)):
                began = time.perf_counter()
                next(batches)
                waits.append(time.perf_counter() - began)
                if steps is not None and loader.steps_of(1) - step <= READ_AHEAD:
                    loader.begin_evaluation()
                time.sleep(pause)
            del batches
            if epoch > 1:
                first.append(waits[0])
                middle += waits[READ_AHEAD + 1 : -READ_AHEAD]
            began = time.perf_counter()
            validation = loader.evaluate()
            next(validation)
            evaluation.append(time.perf_counter() - began)
            list(islice(validation, 10))
    usual = statistics.median(middle)
    print(
        f"{name}, {'each epoch by itself' if steps is None else 'epochs in a row'}: first batch "
        f"{statistics.median(first) * 1000:.2f} ms (worst {max(first) * 1000:.2f}), in the middle "
        f"{usual * 1000:.2f} (worst {max(middle) * 1000:.2f}), ratio "
        f"{statistics.median(first) / usual:.2f}; first of an evaluation "
        f"{statistics.median(evaluation) * 1000:.2f}"
    )


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = folder / MANIFEST_NAME
        write_manifest(path, write_images(folder))
        measure_manifest(path, folder, OPTIONS.workers)
        manifest = map_manifest(folder / "image")
        for name in ("dali", "torchvision"):
            for steps in (None, OPTIONS.epochs * (IMAGES["train"] // BATCH)):
                measure_boundary(name, manifest, folder, steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--step-ms", type=float, default=150)
    parser.add_argument("--workers", type=int, default=8)
    OPTIONS = parser.parse_args()
    main()
