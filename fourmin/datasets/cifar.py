"""CIFAR-10's published archives: arrays of pixels, for Python and for C, as PNGs."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator
from typing import Any

from fourmin.datasets.fashion_mnist import encode_png

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_BATCH = re.compile(r"(?:^|/)(?:data_batch_(?P<number>[1-5])|test_batch)(?P<binary>\.bin)?$")
_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_PLAIN = {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")
    for module, name in (("multiarray", "_reconstruct"), ("numeric", "_frombuffer"))
} | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}


class _Arrays(pickle.Unpickler):
    """Takes arrays, and nothing that could run: an archive is somebody else's file."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PLAIN:
            raise ValueError(f"it holds {module}.{name}, which no array is made of")
        return super().find_class(module, name)


def cifar_images(name: str, data: bytes) -> Iterator[tuple[str, bytes]] | None:
    """Path and PNG of each image of the file `name` of an archive; None where it is no batch.

    An image is named by its position in its set. Raises ValueError for what is no batch inside.
    """
    match = _BATCH.search(name)
    if match is None:
        return None
    split, first = ("val", 0) if match["number"] is None else ("train", int(match["number"]) - 1)
    rows = _binary(data) if match["binary"] else _pickled(data)
    return (
        (f"{split}/{CLASSES[label]}/{10_000 * first + at:05d}.png", _png(pixels))
        for at, (label, pixels) in enumerate(rows)
    )


def _png(planes: bytes) -> bytes:
    """The PNG of an image whose red, green and blue lie one after the other."""
    pixels = bytearray(_PIXELS)
    for colour in range(3):
        pixels[colour::3] = planes[colour * _SIDE * _SIDE : (colour + 1) * _SIDE * _SIDE]
    return encode_png(bytes(pixels), _SIDE, _SIDE, colours=3)


def _binary(data: bytes) -> Iterator[tuple[int, bytes]]:
    if len(data) % (1 + _PIXELS):
        raise ValueError("a batch of CIFAR-10 is cut short")
    for at in range(0, len(data), 1 + _PIXELS):
        yield data[at], data[at + 1 : at + 1 + _PIXELS]


def _pickled(data: bytes) -> Iterator[tuple[int, bytes]]:
    try:
        batch = _Arrays(io.BytesIO(data), encoding="bytes").load()
        labels, pixels = batch[b"labels"], batch[b"data"]
        if len(labels) * _PIXELS != pixels.nbytes:
            raise ValueError("labels and pixels are not as many")
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a batch of CIFAR-10 cannot be read: {error}") from error
    return ((int(label), row.tobytes()) for label, row in zip(labels, pixels, strict=True))
