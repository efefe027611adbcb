"""Sizes and batches by epoch: each epoch is what a loader of its own settings gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from loader_cases import MEAN, STD, make_loader
from PIL import Image

from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.training.data.geometry import evaluation_order, evaluation_plan
from fourmin.training.data.order import OrderDigest, digest_of_order, epoch_permutation

LOADERS = ("dali", "torchvision")
LATER = {"global_batch_size": 12, "image_size": 24, "eval_resize": 30, "crop_area": 0.5}
LAST = {**LATER, "image_size": 40, "eval_resize": 44, "eval_rectangles": True}
PHASES = ((1, LATER), (3, {**LAST, "gradient_accumulation_steps": 2}))
STEPS = 4 + 3 + 3 + 3
"""36 images: 4 batches of 8 in the first epoch, 3 of 12 in those after it."""


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("cache", [0, 8])
@pytest.mark.parametrize("augmentation", ["random-resized-crop", "pad-crop"])
def test_each_epoch_is_that_of_a_loader_with_its_settings(
    name: str, cache: int, augmentation: str, photo_tree: tuple[Path, Manifest]
) -> None:
    """To the bit, made ahead over the borders of epochs, from the first epoch or after a restart
    in the middle of a phase; every image once.
    """
    folder, same = photo_tree[0], {"augmentation": augmentation}
    manifest = Manifest.load(folder / MANIFEST_NAME)
    alone = []
    for epoch, own in ((1, {}), (2, LATER), (3, LATER), (4, {**LAST, **PHASES[1][1]})):
        with make_loader(name, folder, manifest, **same, **own) as loader:
            alone.append((list(loader.train_epoch(epoch)), list(loader.evaluate())))
    for first in (1, 3):
        order = OrderDigest()
        with make_loader(
            name, folder, manifest, **same, steps=STEPS, decoded_cache=cache, phases=PHASES
        ) as loader:
            loader.warm_up()
            for epoch in range(first, 5):
                found = list(loader.train_epoch(epoch))
                loader.begin_evaluation(epoch)
                for batches, expected in zip(
                    (found, list(loader.evaluate(epoch))), alone[epoch - 1], strict=True
                ):
                    assert [b.indices.tolist() for b in batches] == [
                        b.indices.tolist() for b in expected
                    ]
                    for one, other in zip(batches, expected, strict=True):
                        assert torch.equal(one.images, other.images)
                seen = [index for batch in batches for index in batch.indices.tolist()]
                assert sorted(seen) == list(range(len(manifest.split("val"))))
                order.update_from_ranks(
                    [torch.cat([batch.indices for batch in found]).numpy()],
                    loader.of(epoch).global_batch_size,
                )
        batch_of = lambda epoch: 8 if epoch == 1 else 12  # noqa: E731
        assert order.hexdigest() == digest_of_order(11, range(first, 5), 36, batch_of)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_share_every_batch_whatever_its_size(
    ranks: int, photo_tree: tuple[Path, Manifest]
) -> None:
    """In each epoch, step and pass: side by side the ranks' images are the permutation's next."""
    folder = photo_tree[0]
    manifest = Manifest.load(folder / MANIFEST_NAME)
    phases = (
        (1, {"global_batch_size": 12}),
        (2, {"global_batch_size": 16, "gradient_accumulation_steps": 2}),
    )
    shares: list[list[list[list[int]]]] = []
    for rank in range(ranks):
        with make_loader(
            "torchvision", folder, manifest, rank=rank, world_size=ranks, phases=phases
        ) as loader:
            shares.append(
                [[b.indices.tolist() for b in loader.train_epoch(epoch)] for epoch in (1, 2, 3)]
            )
    for epoch, (batch, passes) in enumerate([(8, 1), (12, 1), (16, 2)], start=1):
        parts = [share[epoch - 1] for share in shares]
        steps = 36 // batch
        assert {len(part) for part in parts} == {steps * passes}
        assert {len(one) for part in parts for one in part} == {batch // passes // ranks}
        found = [index for step in zip(*parts, strict=True) for one in step for index in one]
        order = epoch_permutation(11, epoch, 36)[: steps * batch].tolist()
        # A step's passes lie behind each other in each rank's share, not in the batch.
        for at in range(0, len(order), batch):
            assert sorted(found[at : at + batch]) == sorted(order[at : at + batch])


@pytest.mark.parametrize("ranks", [1, 2])
def test_rectangles_are_the_middles_of_images_of_one_ratio(
    ranks: int, photo_tree: tuple[Path, Manifest]
) -> None:
    """Against Pillow, image by image: on all ranks every image once, in order of ratios."""
    folder = photo_tree[0]
    manifest = Manifest.load(folder / MANIFEST_NAME)
    split, seen = manifest.split("val"), []
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)
    for rank in range(ranks):
        with make_loader(
            "torchvision", folder, manifest, rank=rank, world_size=ranks, image_size=40,
            eval_resize=46, eval_rectangles=True,
        ) as loader:  # fmt: skip
            for batch in loader.evaluate():
                ratios = []
                for pixels, index in zip(batch.images, batch.indices.tolist(), strict=True):
                    with Image.open(loader.source.name_of(split, index)) as stored:
                        whole = stored.convert("RGB")
                    ratios.append(whole.width / whole.height)
                    shorter = min(whole.size)
                    width, height = (46 * side // shorter for side in whole.size)
                    scaled = whole.resize((width, height), Image.Resampling.BILINEAR)
                    rows, columns = pixels.shape[1:]
                    top, left = round((height - rows) / 2), round((width - columns) / 2)
                    middle = scaled.crop((left, top, left + columns, top + rows))
                    expected = (np.asarray(middle, np.float32) - mean) / std
                    assert np.allclose(pixels.permute(1, 2, 0).numpy(), expected, atol=1e-5)
                ratio = float(np.mean(ratios))
                longer = int(40 * max(ratio, 1 / ratio)) // 8 * 8
                assert (rows, columns) == ((longer, 40) if ratio < 1 else (40, longer))
                seen += [(ratio, index) for index in batch.indices.tolist()]
    assert sorted(index for _, index in seen) == list(range(len(split)))
    assert [ratio for ratio, _ in seen] == sorted(ratio for ratio, _ in seen)


def test_squares_stay_squares() -> None:
    widths, heights = np.array([50, 80, 33]), np.array([40, 20, 99])
    assert evaluation_order(widths, heights, False).tolist() == [0, 1, 2]
    assert evaluation_order(widths, heights, True).tolist() == [2, 0, 1]
    plan = evaluation_plan(widths, heights, 16, 20)
    assert plan.window.tolist() == [[16, 16]] * 3
