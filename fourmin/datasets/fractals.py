"""The images of the dataset `fractals`: made here, in ImageNet's shape, the same on every machine.

A class is a system of three contractions of the plane, an image points of its attractor, which the
chaos game finds (Barnsley 1988), as in FractalDB (Kataoka et al. 2020, arXiv 2101.08515). Each
image varies the class's numbers (`JITTER`), turns, mirrors, scales, places and colours the figure
at random, and has a background that knows nothing of the class.

Every number comes from raw words of Philox4x64-10 (Salmon et al. 2011), by integers or by +, -, *,
/ and comparisons of float64, each a numpy operation of its own, which IEEE 754 leaves one result:
no sine, no sum over floats, no distribution of a library. What is not ours is the JPEG encoder.
That it is the right one, and the arithmetic too, `require_known_answer` sees by one image.
"""

from __future__ import annotations

import hashlib
import io
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, features
from PIL import __version__ as pillow_version

from fourmin.base.errors import FourminError

Words = npt.NDArray[np.uint64]
Doubles = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Pixels = npt.NDArray[np.uint32]
"""(height, width): red, green and blue from the lowest byte on, which comes first."""

JITTER = 0.25
"""How far an image's numbers may be from its class's. It alone sets the difficulty."""
QUALITY = 94
"""Of the JPEGs, in libjpeg's scale."""
NOISE = (24, 96)
"""Least and most grey levels that the noise on an image spans; it makes the size of the file."""
WALKERS, STEPS, WARMUP = 2048, 42, 8
"""The points of an image are those of all walkers in all steps after a warmup."""
LEAST_CELLS = 500
"""Of 64 x 64 cells that a class's figure has to touch: no class is a few dots or a line."""

_SIZES = (
    *[(500, 375)] * 8,
    *[(375, 500)] * 3,
    *[(500, 333)] * 2,
    *[(333, 500), (500, 400), (400, 400)],
)
"""Width and height in pixels, each as likely as it stands here often: roughly ImageNet's."""
_KEY = int.from_bytes(b"fractals", "big")
_STREAMS = {"class": 0, "train": 1, "val": 2}
_MAPS = 3
_INK = 256 - _MAPS
"""A palette has the background's colours, and from here on one for each map."""
_PARTS = (64, WALKERS * (STEPS + WARMUP) // 8, 1024, 500 * 400 // 8)
"""Words of an image: single numbers, the chaos game, the background, the noise."""
_OCTAVES = ((7, 4), (5, 2), (3, 1))
"""Of the background: binary logarithm of a cell's side in pixels, and weight."""

KNOWN_PIXELS = "e779722547b978f4e12d6392646f09ada10e44766b75c9c81e51537d013e2a94"
KNOWN_JPEG = "f647a743e08a6a3a21cb6a180f23f8ded9f1cb7728725381e73004d470e267c9"
"""SHA-256 of the first training image of class 0, at a jitter of 0.15."""


def words(stream: str, label: int, index: int, number: int) -> Words:
    """The first `number` raw words of an image, or of an attempt at a class."""
    key = np.array([_STREAMS[stream] << 56 | label << 32 | index, _KEY], np.uint64)
    return np.random.Philox(key=key).random_raw(number).astype("<u8", copy=False)


def fractions(raw: Words) -> Doubles:
    """Of each word its upper 53 bits over 2^53: in [0, 1), exact."""
    found: Doubles = (raw >> np.uint64(11)).astype(np.float64) / (1 << 53)
    return found


def draw_class(raw: Words) -> Doubles:
    """A system, (6, maps), from 21 words.

    Its rows: half tangents of two angles, two singular values, the shift in x and y. A map turns by
    the second angle, stretches by the singular values, turns by the first angle and shifts. Where
    the second singular value is negative, it mirrors.
    """
    first, second, wide, narrow, right, down, mirror = fractions(raw).reshape(7, _MAPS)
    wide, narrow = 0.3 + 0.55 * wide, 0.3 + 0.55 * narrow
    narrow = np.where(mirror < 0.5, narrow, -narrow)
    return np.stack([2 * first - 1, 2 * second - 1, wide, narrow, 2 * right - 1, 2 * down - 1])


def vary(system: Doubles, raw: Words, jitter: float) -> Doubles:
    """A system near `system`, from 18 words: angles by up to `jitter` radians, singular values by
    up to half of it as a part of them, shifts by up to `jitter`.
    """
    by = jitter * (2 * fractions(raw).reshape(system.shape) - 1)
    half = by[:2] / 2
    # The tangent of a sum of angles.
    angles = (system[:2] + half) / (1 - system[:2] * half)
    return np.concatenate([angles, system[2:4] * (1 + by[2:4] / 2), system[4:] + by[4:]])


def affine(system: Doubles) -> Doubles:
    """Of each map a, b, e, c, d, f of (x, y) -> (ax + by + e, cx + dy + f); (6, maps)."""
    first, second, wide, narrow, right, down = system
    (cos1, sin1), (cos2, sin2) = _rotation(first), _rotation(second)
    a = cos1 * wide * cos2 - sin1 * narrow * sin2
    b = -cos1 * wide * sin2 - sin1 * narrow * cos2
    c = sin1 * wide * cos2 + cos1 * narrow * sin2
    d = cos1 * narrow * cos2 - sin1 * wide * sin2
    return np.stack([a, b, right, c, d, down])


def _rotation(half: Any) -> tuple[Any, Any]:
    """Cosine and sine of the angle whose half has the tangent `half`."""
    square = half * half
    return (1 - square) / (1 + square), 2 * half / (1 + square)


def play(system: Doubles, raw: Words, walkers: int, steps: int) -> tuple[Doubles, Doubles, Bytes]:
    """The chaos game: x and y of (steps x walkers) points, and the map that led to each.

    A byte of `raw` chooses the next map, in proportion to the maps' determinants. Walkers begin at
    the fixed point of the first map, which is on the attractor.
    """
    table = affine(system)
    a, b, e, c, d, f = table[:, 0]
    size = (1 - a) * (1 - d) - b * c
    x = np.full(walkers, ((1 - d) * e + b * f) / size)
    y = np.full(walkers, ((1 - a) * f + c * e) / size)
    part0, part1, part2 = np.abs(table[0] * table[4] - table[1] * table[3])
    total = part0 + part1 + part2
    chosen = raw.view(np.uint8)[: (WARMUP + steps) * walkers].reshape(-1, walkers)
    maps = (chosen >= int(256 * part0 / total)).astype(np.uint8)
    maps += chosen >= int(256 * (part0 + part1) / total)
    found = np.empty((2, steps, walkers))
    for step, at in enumerate(maps.astype(np.intp), -WARMUP):
        a, b, e, c, d, f = table.take(at, axis=1)
        x, y = a * x + b * y + e, c * x + d * y + f
        if step >= 0:
            found[:, step] = x, y
    return found[0].ravel(), found[1].ravel(), maps[WARMUP:].ravel()


@cache
def class_system(label: int) -> Doubles:
    """The first system of a class whose figure is neither dots nor a line; (6, maps)."""
    for attempt in count():
        raw = words("class", label, attempt, 2048)
        system = draw_class(raw[:21])
        x, y, _ = play(system, raw[21:], 512, 16)
        x, y = x - x.min(), y - y.min()
        scale = 63.5 / max(x.max(), y.max())
        cells = (x * scale).astype(np.intp) * 64 + (y * scale).astype(np.intp)
        if np.count_nonzero(np.bincount(cells)) >= LEAST_CELLS:
            break
    return system


def draw(label: int, split: str, index: int, jitter: float = JITTER) -> Pixels:
    """Image `index` of a class in a split."""
    raw = words(split, label, index, sum(_PARTS))
    head, game, field, grain = np.split(raw, np.cumsum(_PARTS[:-1]))
    width, height = _SIZES[int(head[0]) % len(_SIZES)]
    system = vary(class_system(label), head[1:19], jitter)
    x, y, maps = play(system, game, WALKERS, STEPS)
    column, row = _place(x, y, head[19:24], width, height)
    level = _background(field, width, height)
    # Of points that meet, the last one stays: numpy's guide says so of indices that are repeated.
    level.reshape(-1)[row * width + column] = maps + np.uint8(_INK)
    span = NOISE[0] + (int(head[24]) * (NOISE[1] - NOISE[0]) >> 64)
    pixels: Pixels = _palette(head[25:30], 256 - span)[level]
    noise = grain.view(np.uint8)[: width * height].reshape(height, width).astype(np.uint16)
    noise *= np.uint16(span)
    pixels += (noise >> np.uint16(8)) * np.uint32(0x010101)
    return pixels


def _place(
    x: Doubles, y: Doubles, raw: Words, width: int, height: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Column and row of each point: turned, perhaps mirrored, and put into the middle square, of
    which the figure takes 0.55 to 0.95.
    """
    angle, size, across, along = fractions(raw[:4])
    cos, sin = _rotation(2 * angle - 1)
    bits = int(raw[4])
    # With half a turn more the angle can be any.
    flip, mirror = 1 - 2 * (bits & 1), 1 - (bits & 2)
    x, y = flip * (cos * x - sin * y), flip * mirror * (sin * x + cos * y)
    x, y = x - x.min(), y - y.min()
    side = min(width, height)
    scale = (0.55 + 0.4 * size) * side / max(x.max(), y.max())
    right = (width - side) / 2 + across * (side - x.max() * scale)
    down = (height - side) / 2 + along * (side - y.max() * scale)
    return (x * scale + right).astype(np.int32), (y * scale + down).astype(np.int32)


def _background(raw: Words, width: int, height: int) -> Bytes:
    """Value noise in three octaves, (height, width), less than `_INK`."""
    bytes_left, total = raw.view(np.uint8), np.zeros((height, width), np.uint16)
    for shift, weight in _OCTAVES:
        side = 1 << shift
        rows, columns = (height >> shift) + 2, (width >> shift) + 2
        grid = bytes_left[: rows * columns].reshape(rows, columns).astype(np.uint16)
        bytes_left = bytes_left[rows * columns :]
        at = np.arange(max(width, height))
        cell, right = at >> shift, (at % side).astype(np.uint16)
        left = np.uint16(side) - right
        grid = grid[:, cell[:width]] * left[:width] + grid[:, cell[:width] + 1] * right[:width]
        grid >>= np.uint16(shift)
        cell, down, up = cell[:height], right[:height, None], left[:height, None]
        total += (grid[cell] * up + grid[cell + 1] * down >> np.uint16(shift)) * np.uint16(weight)
    # 7 * 255 is the most, and becomes 251.
    level: Bytes = (total * np.uint16(36) >> np.uint16(8)).astype(np.uint8)
    return level


def _palette(raw: Words, room: int) -> Pixels:
    """256 colours of less than `room` in each channel, from 5 words: the background's, near each
    other, and those of the maps, each channel of which is a quarter of `room` away from these.
    """
    base, more, *inks = raw.view(np.uint8).reshape(5, 8)[:, :3].astype(np.int64)
    low, span = base * (room - 64) >> 8, more >> 2
    colours = low + (span * np.arange(256)[:, None] >> 8)
    for number, ink in enumerate(inks):
        colours[_INK + number] = (low + span // 2 + room // 4 + (ink * room >> 9)) % room
    red, green, blue = colours.T
    packed: Pixels = (red | green << 8 | blue << 16).astype("<u4")
    return packed


def encode(pixels: Pixels) -> bytes:
    """The JPEG of an image: baseline, with standard Huffman tables and halved chroma."""
    height, width = pixels.shape
    out = io.BytesIO()
    image = Image.frombuffer("RGB", (width, height), pixels, "raw", "RGBX", 0, 1)
    image.save(out, "JPEG", quality=QUALITY, subsampling=2, optimize=False, progressive=False)
    return out.getvalue()


def require_known_answer() -> None:
    """Raise FourminError unless one image has here the pixels and the JPEG that it should have."""
    pixels = draw(0, "train", 0, jitter=0.15)
    if hashlib.sha256(pixels.tobytes()).hexdigest() != KNOWN_PIXELS:
        raise FourminError(
            "the arithmetic of numpy has other results here than it has elsewhere",
            f"numpy {np.__version__} does not draw the image that is known",
            "install another version of numpy, and please report this one",
        )
    if hashlib.sha256(encode(pixels)).hexdigest() != KNOWN_JPEG:
        library = f"libjpeg-turbo {features.version('libjpeg_turbo')}"
        if not features.check("libjpeg_turbo"):
            library = f"libjpeg {features.version('jpg')}"
        raise FourminError(
            "the JPEG encoder makes other bytes here than it makes elsewhere",
            f"it is that of Pillow {pillow_version} with {library}",
            "install Pillow from its wheels, which bring libjpeg-turbo: pip install pillow",
        )
