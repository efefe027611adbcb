"""What real datasets hold beside plain RGB JPEGs: both loaders see the same, or name the file."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fourmin.base.errors import FourminError
from fourmin.datasets.check import check_tree
from fourmin.datasets.manifest import ImageRow, Manifest
from fourmin.training.data import build_loader

LOADERS = ("dali", "torchvision")


def photograph(width: int, height: int) -> Image.Image:
    small = np.random.default_rng(width).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Image.Image, kind: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


PHOTO = photograph(64, 50)
GREY = PHOTO.convert("L")
SIXTEEN_BITS = Image.fromarray(np.asarray(GREY).astype(np.uint16) * 257)
TRANSPARENT = PHOTO.convert("RGBA")
TRANSPARENT.putalpha(GREY)

KINDS = {
    "subsampled": encode(PHOTO, "JPEG", quality=90, subsampling=2),
    "odd size, subsampled": encode(photograph(51, 43), "JPEG", quality=90, subsampling=2),
    "progressive": encode(PHOTO, "JPEG", quality=95, progressive=True),
    "restart markers": encode(PHOTO, "JPEG", quality=95, restart_marker_rows=1),
    "grey": encode(GREY, "JPEG", quality=95),
    "CMYK": encode(PHOTO.convert("CMYK"), "JPEG", quality=95),
    "PNG": encode(PHOTO, "PNG"),
    "grey PNG": encode(GREY, "PNG"),
    "grey PNG of 16 bits": encode(SIXTEEN_BITS, "PNG"),
    "grey PNG with alpha": encode(PHOTO.convert("LA"), "PNG"),
    "PNG with alpha": encode(TRANSPARENT, "PNG"),
    "PNG with a palette": encode(PHOTO.convert("P"), "PNG"),
    "PNG with a transparent colour": encode(PHOTO.convert("P"), "PNG", transparency=3),
    "PNG of one bit": encode(PHOTO.convert("1"), "PNG"),
} | {f"orientation {n}": encode(PHOTO, "JPEG", quality=95, exif=turned(n)) for n in range(2, 9)}


def put(root: Path, files: list[bytes]) -> None:
    """Every file is called a JPEG, in both splits; the training ones are made different."""
    for split in ("train", "val"):
        folder = root / split / "class"
        folder.mkdir(parents=True)
        for position, data in enumerate(files):
            # Bytes after the end of an image are ignored by every decoder.
            (folder / f"{position:02d}.JPEG").write_bytes(data + b"\0" * (split == "train"))


def loaded(name: str, root: Path, manifest: Manifest) -> np.ndarray:
    """Grey levels of all validation images, (n, 40, 40, 3)."""
    settings = {"image_size": 40, "eval_resize": 40, "augmentation": "none"}
    with build_loader(
        name, manifest=manifest, data_dir=root, seed=1, global_batch_size=2,
        mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), **settings,
    ) as loader:  # fmt: skip
        return np.concatenate(
            [batch.images.permute(0, 2, 3, 1).numpy().copy() for batch in loader.evaluate()]
        )


def test_both_loaders_see_the_same_pixels_in_every_kind(tmp_path):
    """Tolerance in grey levels: mean 0.3 in each image, the largest difference 4.

    Both against Pillow's own conversion, but for 16 bits, where that cuts off; there against
    the same image of 8 bits.
    """
    put(tmp_path, [*KINDS.values()])
    report = check_tree(tmp_path, workers=1)
    assert report.ok, report.problems
    counts = {note.text.split(",")[0]: note.count for note in report.notes.values()}
    assert counts["are CMYK"] == 2
    assert counts["are PNG by content under a JPEG name"] == 2 * 8
    assert counts["have an EXIF orientation"] == 2 * 7
    images = {name: loaded(name, tmp_path, report.manifest) for name in LOADERS}
    for position, (kind, data) in enumerate(KINDS.items()):
        source = encode(GREY, "PNG") if "16 bits" in kind else data
        with Image.open(io.BytesIO(source)) as stored:
            image = stored.convert("RGB")
        shorter = min(image.size)
        image = image.resize(tuple(40 * side // shorter for side in image.size), 2)
        left = round((image.width - 40) / 2)
        expected = np.asarray(image.crop((left, 0, left + 40, 40))).astype(float)
        for name in LOADERS:
            difference = np.abs(images[name][position] - expected)
            assert difference.mean() < 0.3, (kind, name)
            assert difference.max() <= 4, (kind, name)


CUT = {
    "half a JPEG": lambda: encode(PHOTO, "JPEG", quality=95)[:900],
    "half a progressive JPEG": lambda: encode(PHOTO, "JPEG", quality=95, progressive=True)[:900],
    "a JPEG without its end": lambda: encode(PHOTO, "JPEG", quality=95)[:-9],
    "a JPEG of zeros from its middle": lambda: encode(PHOTO, "JPEG", quality=95)[:900].ljust(2000),
    "a JPEG's header": lambda: encode(PHOTO, "JPEG")[:100],
    "half a PNG": lambda: encode(PHOTO, "PNG")[:900],
    "a PNG with a flipped bit": lambda: (
        (data := encode(PHOTO, "PNG"))[:900] + bytes([data[900] ^ 0x55]) + data[901:]
    ),
}


@pytest.mark.parametrize("kind", CUT)
def test_what_cannot_be_decoded_is_named_by_the_check_and_both_loaders(kind, tmp_path):
    """The manifest lists the broken file as it is, so that its size does not tell."""
    files = [KINDS["progressive"], CUT[kind](), KINDS["grey"]]
    put(tmp_path, files)
    problems = [problem.path for problem in check_tree(tmp_path, workers=1).problems]
    assert problems == ["train/class/01.JPEG", "val/class/01.JPEG"]
    rows = [
        ImageRow(split, f"class/{path.name}", len(data), hashlib.sha256(data).digest(), 64, 50)
        for split in ("train", "val")
        for path in sorted((tmp_path / split / "class").iterdir())
        for data in [path.read_bytes()]
    ]
    for name in LOADERS:
        with pytest.raises(FourminError, match="cannot decode the image") as caught:
            loaded(name, tmp_path, Manifest.from_rows(rows))
        assert str(tmp_path / "val/class/01.JPEG") in caught.value.what


def test_a_png_without_its_end_chunk_is_refused_by_the_check(tmp_path):
    """Pillow decodes it, DALI does not."""
    put(tmp_path, [KINDS["grey"], KINDS["PNG"][:-9]])
    problems = check_tree(tmp_path, workers=1).problems
    assert [problem.path for problem in problems] == ["train/class/01.JPEG", "val/class/01.JPEG"]
    assert all("truncated" in problem.reason for problem in problems)
