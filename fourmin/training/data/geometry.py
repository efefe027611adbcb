"""What to cut, scale and mirror, for a batch at once; both loaders follow the same plan.

Every sample goes through four steps: a region of the stored image is cut out, scaled to a size
(bilinear, antialiased, as Pillow does), a window, a square of `image_size`, is cut from that (what
lies outside is black), and it is mirrored or not.

Augmentations of training:

`random-resized-crop`: a region of `crop_area` (8%) to 100% of the area and of ratio 3/4 to 4/3,
ten tries, else the largest central region within these ratios; mirrored in half the cases. The
rule is that of torchvision's `RandomResizedCrop.get_params` (Szegedy et al. 2015, "Going deeper
with convolutions"), fed by our numbers.
`shift`: the evaluation's transform with its square moved by -1, 0 or 1 pixels in each
direction, not mirrored.
`pad-crop`: the evaluation's transform with its square moved by up to an eighth of its side in
each direction, mirrored in half the cases (padding and cropping as He et al. 2015, arXiv
1512.03385, section 4.2, do with 4 pixels on images of 32; the padding is black).
`none`: the evaluation's transform.

Evaluation: the shorter side is scaled to `eval_resize` and the central square is cut; or, with
`rectangles`, a window of the batch's mean ratio of sides, rounded down to a multiple of 8 (fast.ai
2018; the batches are then of images in order of their ratios).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fourmin.base.errors import unknown
from fourmin.recipe.phases import check_image_sizes

RATIO = (3 / 4, 4 / 3)
TRIES = 10

Int32 = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

RANDOMS = {"random-resized-crop": 2 * TRIES + 3, "pad-crop": 3, "shift": 2, "none": 0}
"""Augmentations, and the uniform numbers that each takes for one sample."""


@dataclass(frozen=True)
class CutPlan:
    """The geometry of b samples, in pixels, all int32.

    `start` and `shape`: (b, 2), row and column, of the region of the stored image; `size`:
    (b, 2), height and width to which it is scaled; `crop`: (b, 2), row and column of the window
    in the scaled image, possibly outside of it, and `window`: (b, 2), its height and width, the
    same for all; `mirror`: (b,), 0 or 1.
    """

    start: Int32
    shape: Int32
    size: Int32
    crop: Int32
    window: Int32
    mirror: Int32


def check_settings(augmentation: str, image_size: int, eval_resize: int) -> None:
    """Raise FourminError for an unknown augmentation or sizes that cannot be."""
    if augmentation not in RANDOMS:
        raise unknown(f"unknown augmentation {augmentation!r}", augmentation, RANDOMS)
    check_image_sizes(image_size, eval_resize)


def training_plan(
    augmentation: str,
    widths: npt.ArrayLike,
    heights: npt.ArrayLike,
    randoms: Floats,
    image_size: int,
    eval_resize: int,
    crop_area: float = 0.08,
) -> CutPlan:
    """The plan of training samples; `randoms` is (b, RANDOMS[augmentation]) in [0, 1)."""
    if augmentation == "random-resized-crop":
        return _random_resized_crop(widths, heights, randoms, image_size, crop_area)
    plan = evaluation_plan(widths, heights, image_size, eval_resize)
    if augmentation == "none":
        return plan
    reach = image_size // 8 if augmentation == "pad-crop" else 1
    moves = np.floor(randoms[:, :2] * (2 * reach + 1)).astype(np.int32) - reach
    mirror = plan.mirror
    if augmentation == "pad-crop":
        mirror = (randoms[:, 2] < 0.5).astype(np.int32)
    return replace(plan, crop=plan.crop + moves, mirror=mirror)


def evaluation_window(
    widths: npt.ArrayLike, heights: npt.ArrayLike, image_size: int, rectangles: bool
) -> tuple[int, int]:
    """Height and width of what is cut from each image of an evaluation's batch."""
    if not rectangles:
        return image_size, image_size
    ratio = float(np.mean(np.asarray(widths) / np.asarray(heights)))
    longer = max(image_size, int(image_size * max(ratio, 1 / ratio)) // 8 * 8)
    return (longer, image_size) if ratio < 1 else (image_size, longer)


def evaluation_order(
    widths: npt.ArrayLike, heights: npt.ArrayLike, rectangles: bool
) -> npt.NDArray[np.int64]:
    """All samples of an evaluation in the order in which they make batches."""
    ratios = np.asarray(widths) / np.asarray(heights)
    return np.argsort(ratios, kind="stable") if rectangles else np.arange(len(ratios))


def evaluation_plan(
    widths: npt.ArrayLike,
    heights: npt.ArrayLike,
    image_size: int,
    eval_resize: int,
    rectangles: bool = False,
) -> CutPlan:
    """The plan of one batch's evaluation samples: shorter side to `eval_resize`, central window."""
    window = np.array(evaluation_window(widths, heights, image_size, rectangles), np.int32)
    shape = np.stack([np.asarray(heights), np.asarray(widths)], axis=1).astype(np.int64)
    shorter = shape.min(axis=1, keepdims=True)
    size = eval_resize * shape // shorter
    # As torchvision's center_crop: half of the rest, rounded half to even.
    crop = np.rint((size - window) / 2)
    return CutPlan(
        start=np.zeros(shape.shape, np.int32),
        shape=shape.astype(np.int32),
        size=size.astype(np.int32),
        crop=crop.astype(np.int32),
        window=np.broadcast_to(window, shape.shape).copy(),
        mirror=np.zeros(len(shape), np.int32),
    )


def _random_resized_crop(
    widths: npt.ArrayLike,
    heights: npt.ArrayLike,
    randoms: Floats,
    image_size: int,
    crop_area: float,
) -> CutPlan:
    width = np.asarray(widths, dtype=np.float64)
    height = np.asarray(heights, dtype=np.float64)
    area = (width * height)[:, None] * (crop_area + (1 - crop_area) * randoms[:, :TRIES])
    low, high = np.log(RATIO[0]), np.log(RATIO[1])
    ratio = np.exp(low + (high - low) * randoms[:, TRIES : 2 * TRIES])
    tried_w = np.rint(np.sqrt(area * ratio))
    tried_h = np.rint(np.sqrt(area / ratio))
    fits = (
        (tried_w > 0) & (tried_w <= width[:, None]) & (tried_h > 0) & (tried_h <= height[:, None])
    )
    rows = np.arange(len(width))
    first = fits.argmax(axis=1)
    found = fits[rows, first]

    central_w = np.minimum(width, np.rint(height * RATIO[1]))
    central_h = np.minimum(height, np.rint(width / RATIO[0]))
    w = np.where(found, tried_w[rows, first], central_w)
    h = np.where(found, tried_h[rows, first], central_h)
    y, x, mirror = randoms[:, 2 * TRIES], randoms[:, 2 * TRIES + 1], randoms[:, 2 * TRIES + 2]
    top = np.where(found, np.floor(y * (height - h + 1)), (height - h) // 2)
    left = np.where(found, np.floor(x * (width - w + 1)), (width - w) // 2)
    square = np.full((len(width), 2), image_size, np.int32)
    return CutPlan(
        start=np.stack([top, left], axis=1).astype(np.int32),
        shape=np.stack([h, w], axis=1).astype(np.int32),
        size=square,
        crop=np.zeros_like(square),
        window=square,
        mirror=(mirror < 0.5).astype(np.int32),
    )
