"""The embedded dataset `digits`: scikit-learn's 1,797 handwritten digits as a JPEG tree.

The tree is the same on every machine. Each 8x8 image of values 0 to 16 becomes a grey 16x16
JPEG: value v is the grey level round(255 v / 16), and each pixel a block of 2x2, so that no
resampling filter is involved. The split is our own rule, without random numbers: within each
class the images are sorted by the SHA-256 of their 64 values, and the first ones are validation
images; a class gives 360/1797 of its images, with the places that are left over going to the
largest remainders (the smaller digit first among equals). An image is named by its position in
scikit-learn's set.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import os
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.installation import install
from fourmin.base.mishaps import told
from fourmin.datasets.cache import cached_tree
from fourmin.datasets.manifest import MANIFEST_NAME, SPLITS, ImageRow, Manifest

TREE_NAME = "digits-v1"
IMAGES = 1797
VALIDATION_IMAGES = 360
JPEG_QUALITY = 95
_FILE = "datasets/data/digits.csv.gz"
SOURCE_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
"""SHA-256 over all images' 64 values (one byte each) and label (one byte), in order."""


def ensure_digits(root: Path | None = None) -> Path:
    """The folder of the digits tree with its manifest, written now if it is not there.

    `root` is the folder that holds (or will hold) `digits-v1`; without it the user's cache.
    Every file is compared with the manifest on each call (1 MB of reading); a tree that was
    altered or half written is replaced. Any number of processes may call this at once.
    Raises FourminError when the folder cannot be written, or scikit-learn or Pillow are missing or
    hold other digits.
    """
    return cached_tree(TREE_NAME, root, _is_intact, _build)


def validation_images(images: list[bytes], labels: list[int]) -> list[int]:
    """Positions of the validation images, sorted, by the rule of this module.

    `images` holds the 64 values of each image as bytes, `labels` its class.
    """
    members: dict[int, list[int]] = {}
    for position, label in enumerate(labels):
        members.setdefault(label, []).append(position)
    # Exact: count * 360 / 1797 as quotient and remainder of integers.
    shares = {
        label: divmod(len(found) * VALIDATION_IMAGES, len(labels))
        for label, found in members.items()
    }
    left_over = VALIDATION_IMAGES - sum(quotient for quotient, _ in shares.values())
    rounded_up = sorted(shares, key=lambda label: (-shares[label][1], label))[:left_over]
    chosen: list[int] = []
    for label, found in members.items():
        take = shares[label][0] + (label in rounded_up)
        found.sort(key=lambda position: hashlib.sha256(images[position]).digest())
        chosen += found[:take]
    return sorted(chosen)


def _load_source() -> tuple[list[bytes], list[int]]:
    """Its file, read without scikit-learn: that takes seconds to import, and OpenBLAS, which it
    brings, never ends where memory is limited.
    """
    cannot = "the dataset digits cannot be made here"
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise FourminError(cannot, "the package sklearn is missing", install("train"))
    with told(cannot, install("train")):
        text = gzip.decompress((Path(package.submodule_search_locations[0]) / _FILE).read_bytes())
    images, labels = [], []
    for line in text.splitlines():
        *values, label = map(int, line.split(b","))
        images.append(bytes(values))
        labels.append(label)
    digest = hashlib.sha256(b"".join(images) + bytes(labels)).hexdigest()
    if digest != SOURCE_SHA256:
        raise FourminError(
            "the digits of the installed scikit-learn are not the benchmark's",
            f"their SHA-256 is {digest}, not {SOURCE_SHA256}",
            "install another version of scikit-learn (1.4 or later)",
        )
    return images, labels


def _encode(values: bytes) -> bytes:
    """One image's 64 values as a grey 16x16 JPEG."""
    from PIL import Image

    levels = [(value * 255 + 8) // 16 for value in values]
    pixels = bytes(levels[row // 2 * 8 + column // 2] for row in range(16) for column in range(16))
    out = io.BytesIO()
    Image.frombytes("L", (16, 16), pixels).save(
        out, "JPEG", quality=JPEG_QUALITY, optimize=False, progressive=False
    )
    return out.getvalue()


def _build(folder: Path) -> None:
    images, labels = _load_source()
    validation = set(validation_images(images, labels))
    for split in SPLITS:
        for label in range(10):
            (folder / split / str(label)).mkdir(parents=True)
    rows = []
    for position, (values, label) in enumerate(zip(images, labels, strict=True)):
        split = "val" if position in validation else "train"
        path = f"{label}/{position:04d}.jpg"
        data = _encode(values)
        (folder / split / path).write_bytes(data)
        rows.append(ImageRow(split, path, len(data), hashlib.sha256(data).digest(), 16, 16))
    Manifest.from_rows(rows).write(folder / MANIFEST_NAME)


def _is_intact(folder: Path) -> bool:
    """Whether exactly the manifest's files are there, with the manifest's bytes."""
    try:
        manifest = Manifest.load(folder / MANIFEST_NAME)
        if sum(len(manifest.split(name)) for name in SPLITS) != IMAGES:
            return False
        for name in SPLITS:
            split = manifest.split(name)
            base = folder / name
            present = {
                f"{entry.name}/{file}" for entry in os.scandir(base) for file in os.listdir(entry)
            }
            if present != set(split.paths):
                return False
            for index, path in enumerate(split.paths):
                if hashlib.sha256((base / path).read_bytes()).hexdigest() != split.sha256(index):
                    return False
    except (FourminError, OSError):
        return False
    return True
