"""The dataset `fashion-mnist`: Zalando Research's 70,000 grey 28x28 images as a PNG tree.

The tree is made from the four published IDX files (MIT licence; Xiao et al. 2017, arXiv
1708.07747), packed with gzip or not, as Debian's package dataset-fashion-mnist and
torchvision.datasets.FashionMNIST leave them. Training and validation images are the published
training and test sets; a class is its number, an image is named by its position in its set.

The PNGs hold the pixels uncompressed: what a compressor makes of them depends on its version,
and the tree must have the same bytes on every machine.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.files import user_folder
from fourmin.base.mishaps import told
from fourmin.datasets.cache import cached_tree
from fourmin.datasets.manifest import MANIFEST_NAME, SPLITS, ImageRow, Manifest
from fourmin.datasets.pool import Progress, unfollowed

TREE_NAME = "fashion-mnist-v1"
IMAGES = {"train": 60_000, "val": 10_000}
SIDE = 28
CLASSES = 10
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
HOW_TO_GET = (
    "apt-get install dataset-fashion-mnist; or have torchvision.datasets.FashionMNIST download "
    "its files, then: fourmin data prepare <its folder raw> DEST, and --data-dir DEST"
)
"""What a user does where no source is found."""

_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "val": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""Of the unpacked files: packing the same bytes again gives another file."""
_IMAGE_HEADER, _LABEL_HEADER = 16, 8


def ensure_fashion_mnist(root: Path | None = None) -> Path:
    """The folder of the tree with its manifest, written now if it is not there.

    `root` is the folder that holds (or will hold) `fashion-mnist-v1`; without it the user's
    cache. The source is Debian's folder. Raises FourminError when it is not there or holds
    other files, or when the tree cannot be written.
    """
    return cached_tree(
        TREE_NAME, root, _is_intact, lambda folder: write_tree(DEBIAN_FOLDER, folder)
    )


def missing_fashion_mnist() -> FourminError | None:
    """What `ensure_fashion_mnist` would raise for want of a source, or None."""
    made = user_folder("XDG_CACHE_HOME", ".cache") / TREE_NAME
    if is_source(DEBIAN_FOLDER) or (made / MANIFEST_NAME).is_file():
        return None
    return FourminError(
        "the dataset fashion-mnist is not here",
        f"{DEBIAN_FOLDER} does not hold its four files, and no --data-dir was given",
        HOW_TO_GET,
    )


def is_source(folder: Path) -> bool:
    """Whether `folder` holds the four files by name, packed or not."""
    return all(_locate(folder, name) is not None for pair in _FILES.values() for name in pair)


def write_tree(source: Path, folder: Path, progress: Progress = unfollowed) -> None:
    """Write the tree made from the files in `source` into the empty `folder`, with its manifest.

    Raises FourminError when a file is missing or is not the published one, OSError when the
    tree cannot be written.
    """
    rows = []
    for split in SPLITS:
        images, labels = (_read(source, name) for name in _FILES[split])
        for label in range(CLASSES):
            (folder / split / str(label)).mkdir(parents=True)
        for position in range(IMAGES[split]):
            start = _IMAGE_HEADER + position * SIDE * SIDE
            data = encode_png(images[start : start + SIDE * SIDE], SIDE, SIDE)
            path = f"{labels[_LABEL_HEADER + position]}/{position:05d}.png"
            (folder / split / path).write_bytes(data)
            digest = hashlib.sha256(data).digest()
            rows.append(ImageRow(split, path, len(data), digest, SIDE, SIDE))
            progress(len(rows), sum(IMAGES.values()))
    Manifest.from_rows(rows).write(folder / MANIFEST_NAME)


def encode_png(pixels: bytes, width: int, height: int, colours: int = 1) -> bytes:
    """An 8-bit PNG, grey or of 3 `colours`, its pixels in one stored deflate block.

    The format: PNG specification (ISO/IEC 15948), RFC 1950 and RFC 1951 section 3.2.4, which
    limits a stored block to 65,535 bytes.
    """
    # Each row begins with its filter: 0, none.
    row = colours * width
    rows = b"".join(b"\0" + pixels[at : at + row] for at in range(0, row * height, row))
    stored = struct.pack("<BHH", 1, len(rows), len(rows) ^ 0xFFFF) + rows
    stream = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(rows))
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if colours == 3 else 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data) for kind, data in ((b"IHDR", header), (b"IDAT", stream), (b"IEND", b""))
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def _locate(folder: Path, name: str) -> Path | None:
    candidates = (folder / name, folder / f"{name}.gz")
    return next((path for path in candidates if path.is_file()), None)


def _read(folder: Path, name: str) -> bytes:
    path = _locate(folder, name)
    if path is None:
        raise FourminError(
            f"{folder} does not hold {name}",
            "the dataset fashion-mnist is made from four files, packed with gzip or not",
            HOW_TO_GET,
        )
    with told(f"cannot read {path}", "fetch it again", (OSError, EOFError, zlib.error)):
        packed = path.read_bytes()
        data = gzip.decompress(packed) if path.suffix == ".gz" else packed
    digest = hashlib.sha256(data).hexdigest()
    if digest != _SHA256[name]:
        raise FourminError(
            f"{path} is not the published file",
            f"unpacked, its SHA-256 is {digest}, not {_SHA256[name]}",
            "fetch it again",
        )
    return data


def _is_intact(folder: Path) -> bool:
    try:
        manifest = Manifest.load(folder / MANIFEST_NAME)
    except FourminError:
        return False
    return all(len(manifest.split(name)) == IMAGES[name] for name in SPLITS)
