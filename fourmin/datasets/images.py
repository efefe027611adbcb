"""One image of a dataset, looked at: hashed, decoded to its end, and what is odd about it."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fourmin.base.errors import FourminError
from fourmin.base.installation import install
from fourmin.base.mishaps import Kinds, told
from fourmin.datasets.manifest import ImageRow, is_image_name

_EXIF_ORIENTATION = 0x0112
_PNG_END = b"IEND\xaeB`\x82"
"""Type and checksum of the chunk that ends every PNG."""
CMYK = "are CMYK, not RGB"
_GREY = "are grey, not RGB"
_PNG_AS_JPEG = "are PNG by content under a JPEG name"
_JPEG_AS_PNG = "are JPEG by content under a PNG name"
_ORIENTED = "have an EXIF orientation, which training ignores"


class Scanned(NamedTuple):
    """What one image gave: a row or a problem, and the texts of the notes it counts in."""

    name: str
    row: ImageRow | None
    problem: str
    notes: tuple[str, ...] = ()
    png: bool = False


def require_pillow() -> None:
    """Raise FourminError where images cannot be decoded."""
    with told("images cannot be checked here", install("train"), ImportError):
        import PIL.Image  # noqa: F401


def damaged(path: Path, why: str) -> FourminError:
    """The refusal of a file of images that cannot be read to its end."""
    return FourminError(
        f"{path} is damaged, or not what its name says",
        why,
        "fetch it again, and compare its size and MD5 with those that its publisher states",
    )


@contextmanager
def whole(path: Path, broken: Kinds) -> Iterator[None]:
    """Raise FourminError, that `path` is damaged, for an error of the kinds `broken` within."""
    try:
        yield
    except broken as error:
        raise damaged(path, str(error)) from error


def printable(name: str) -> str:
    """A file name that any terminal and JSON writer can take."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in name
    )


def scan_image(data: bytes, name: str, split: str, path: str) -> Scanned:
    """Look at the bytes of the image `path` of a split, which is called `name` in a report.

    Where `path` does not end as an image's does, nothing is said of its suffix.
    """
    if not data:
        return Scanned(name, None, "the file is empty")
    try:
        width, height, notes, png = _decode(data, path)
    except Exception as error:
        # Pillow's plugins raise many types (OSError, SyntaxError, ValueError, struct.error,
        # DecompressionBombError) for hostile or broken files; each is this file's problem.
        return Scanned(name, None, decode_fault(error))
    row = ImageRow(split, path, len(data), hashlib.sha256(data).digest(), width, height)
    return Scanned(name, row, "", notes, png)


def _decode(data: bytes, path: str) -> tuple[int, int, tuple[str, ...], bool]:
    """Width, height and notes of an image, decoded to its end, and whether it is a PNG."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            image.load()
            if image.format == "PNG" and _PNG_END not in data:
                # Pillow does not look for it, other decoders do.
                raise OSError("truncated: the end chunk is missing")
            notes = []
            named_png = path.lower().endswith(".png")
            if is_image_name(path) and (image.format == "PNG") != named_png:
                notes.append(_JPEG_AS_PNG if named_png else _PNG_AS_JPEG)
            if image.mode == "CMYK":
                notes.append(CMYK)
            elif image.mode in ("1", "L", "LA", "I", "I;16"):
                notes.append(_GREY)
            if image.getexif().get(_EXIF_ORIENTATION, 1) != 1:
                notes.append(_ORIENTED)
            return image.width, image.height, tuple(notes), image.format == "PNG"


def decode_fault(error: object) -> str:
    """Why an image does not decode, in words that name no object of this process."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "is neither a JPEG nor a PNG by content"
    if isinstance(error, Image.DecompressionBombError):
        return "is too large an image to be a photograph"
    if "truncated" in str(error).lower():
        return "is truncated: it does not decode to its end"
    return f"does not decode: {printable(str(error))[:200] or type(error).__name__}"
