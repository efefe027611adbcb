"""The cache of decoded images: the same batches as without, by fewer decodes, within its limit."""

from __future__ import annotations

import shutil
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loader_cases import make_loader

from fourmin.base.errors import FourminError
from fourmin.datasets.manifest import Manifest
from fourmin.datasets.prepare import prepare
from fourmin.training.data.cache import DecodedCache
from fourmin.training.data.order import OrderDigest, digest_of_order, epoch_permutation

LOADERS = ("dali", "torchvision")


def pixels(size: int) -> np.ndarray:
    return np.zeros((1, size, 3), np.uint8)


@given(
    st.integers(0, 90),
    st.lists(st.tuples(st.sampled_from(["train", "val"]), st.integers(0, 5), st.integers(1, 9))),
)
def test_what_is_put_is_kept_as_long_as_there_is_room(limit, puts):
    cache, kept = DecodedCache(limit), {}
    for split, index, size in puts:
        one = pixels(size)
        cache.put(split, index, one)
        room = limit - sum(3 * other.shape[1] for other in kept.values())
        if (split, index) not in kept and 3 * size <= room:
            kept[split, index] = one
        assert cache.held == sum(other.nbytes for other in kept.values()) <= limit
        assert len(cache) == len(kept)
        for name in ("train", "val"):
            for sample in range(6):
                assert cache.get(name, sample) is kept.get((name, sample))


def test_what_is_kept_cannot_be_written():
    cache = DecodedCache(30)
    cache.put("train", 3, pixels(2))
    with pytest.raises(ValueError, match="read-only"):
        cache.get("train", 3)[0] = 1


def test_threads_that_put_at_once_do_not_pass_the_limit():
    cache = DecodedCache(3 * 1000)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: cache.put("train", index % 1500, pixels(1)), range(6000)))
    assert (len(cache), cache.held) == (1000, 3000)


def make(name, tree, **changes):
    # Nine batches hold all 36 training images.
    return make_loader(name, *tree, **{"global_batch_size": 4, "threads": 2, **changes})


@pytest.fixture
def tree(photo_tree, tmp_path) -> tuple[Path, Manifest]:
    """A copy of the photographs that a test may damage."""
    return shutil.copytree(photo_tree[0], tmp_path / "tree"), photo_tree[1]


@pytest.fixture
def shards(photo_tree, tmp_path) -> tuple[Path, Manifest]:
    prepare([photo_tree[0]], tmp_path / "shards", shard_bytes=40_000, workers=1)
    return tmp_path / "shards", photo_tree[1]


def assert_same(some, others):
    """To the bit: what is decoded whole and then cut is what is decoded in part."""
    for one, other in zip(some, others, strict=True):
        assert torch.equal(one.indices, other.indices)
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.images, other.images)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    ("layout", "augmentation"), [("tree", "random-resized-crop"), ("shards", "pad-crop")]
)
def test_batches_are_the_same_and_come_from_memory_alone_once_all_is_kept(
    name, layout, augmentation, request
):
    """The data are destroyed after an epoch and an evaluation; the next ones are as without."""
    data = request.getfixturevalue(layout)
    with make(name, data, augmentation=augmentation) as loader:
        expected = [list(loader.train_epoch(0)), list(loader.evaluate())]
        expected += [list(loader.train_epoch(1)), list(loader.evaluate())]
        assert loader.cache is None
    with make(name, data, augmentation=augmentation, decoded_cache=1) as loader:
        assert len(loader.cache) == 0
        found = [list(loader.train_epoch(0)), list(loader.evaluate())]
        for path in data[0].rglob("*.*"):
            path.write_bytes(b"")
        found += [list(loader.train_epoch(1)), list(loader.evaluate())]
        splits = [data[1].split(split) for split in ("train", "val")]
        areas = [np.array(split.widths) @ np.array(split.heights) for split in splits]
        assert (len(loader.cache), loader.cache.held) == (36 + 15, 3 * sum(areas))
    for some, others in zip(found, expected, strict=True):
        assert_same(some, others)
    digest = OrderDigest()
    for epoch in (found[0], found[2]):
        digest.update_from_ranks([torch.cat([batch.indices for batch in epoch]).numpy()], 4)
    assert digest.hexdigest() == digest_of_order(11, range(2), 36, 4)


@pytest.mark.parametrize("name", LOADERS)
def test_with_too_little_room_the_rest_is_decoded_again(name, tree):
    """Files of which the pixels are kept may go; of the others, each is read, and missed."""
    root, manifest = tree
    split = manifest.split("train")
    with make(name, tree) as loader:
        expected = [list(loader.train_epoch(epoch)) for epoch in (0, 1)]
        validation = list(loader.evaluate())
    with make(name, tree, decoded_cache=1) as loader:
        cache = loader.cache
        cache.limit = 200_000
        found = [list(loader.train_epoch(0))]
        kept = [index for index in range(36) if cache.get("train", index) is not None]
        assert 200_000 - 3 * 90 * 90 < cache.held <= 200_000
        assert 8 < len(kept) < 30
        for index in kept:
            (root / "train" / split.paths[index]).unlink()
        found.append(list(loader.train_epoch(1)))
        assert_same(loader.evaluate(), validation)
        # The splits share the limit.
        assert cache.held <= 200_000
        gone = root / "train" / split.paths[next(i for i in range(36) if i not in kept)]
        gone.unlink()
        with pytest.raises(FourminError, match="No such file") as caught:
            list(loader.train_epoch(2))
    assert str(gone) in caught.value.what
    for some, others in zip(found, expected, strict=True):
        assert_same(some, others)


@pytest.mark.parametrize("name", LOADERS)
def test_an_epoch_left_early_and_an_evaluation_amid_it_disturb_nothing(name, photo_tree):
    with make(name, photo_tree) as loader:
        expected, validation = list(loader.train_epoch(1)), list(loader.evaluate())
    with make(name, photo_tree, decoded_cache=1) as loader:
        started = loader.train_epoch(0)
        next(started)
        assert_same(loader.evaluate(), validation)
        started.close()
        assert_same(loader.train_epoch(1), expected)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda path: path.write_bytes(b"\xff\xd8" + b"x" * (path.stat().st_size - 2)), "decode"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "changed"),
    ],
    ids=["corrupt", "longer"],
)
def test_a_bad_file_is_named_when_it_is_first_read(name, change, why, tree):
    victim = tree[0] / "train" / tree[1].split("train").paths[7]
    change(victim)
    with (
        make(name, tree, decoded_cache=1) as loader,
        pytest.raises(FourminError, match=why) as caught,
    ):
        list(loader.train_epoch(0))
    assert str(victim) in caught.value.what


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("position", [0, 1, 35])
def test_a_bad_file_is_named_wherever_in_the_order_it_comes(name, position, tree):
    """Batches are decoded ahead: the first, one that is begun with others, and the last."""
    index = int(epoch_permutation(11, 0, 36)[position])
    victim = tree[0] / "train" / tree[1].split("train").paths[index]
    victim.write_bytes(b"x" * victim.stat().st_size)
    with (
        make(name, tree, decoded_cache=1, global_batch_size=1) as loader,
        pytest.raises(FourminError, match="cannot decode") as caught,
    ):
        list(loader.train_epoch(0))
    assert str(victim) in caught.value.what


@pytest.mark.parametrize("name", LOADERS)
def test_an_image_of_another_size_than_listed_is_named(name, photo_tree):
    root, manifest = photo_tree
    split = manifest.split("train")
    widths = array("q", split.widths)
    widths[7] -= 1
    listed = replace(manifest, splits=manifest.splits | {"train": replace(split, widths=widths)})
    with (
        make(name, (root, listed), decoded_cache=1) as loader,
        pytest.raises(FourminError, match="not as wide and high") as caught,
    ):
        list(loader.train_epoch(0))
    assert str(root / "train" / split.paths[7]) in caught.value.what


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("augmentation", ["random-resized-crop", "pad-crop"])
def test_a_gpu_gets_the_same_pixels_with_the_cache(augmentation, photo_tree):
    """Decoded on the CPU both times: to the bit, when missed and when kept."""
    changes = {"device": "cuda:0", "decoder": "cpu", "augmentation": augmentation}
    with make("dali", photo_tree, **changes) as loader:
        expected = [*loader.train_epoch(0), *loader.evaluate()]
    with make("dali", photo_tree, decoded_cache=1, **changes) as loader:
        for _ in range(2):
            assert_same([*loader.train_epoch(0), *loader.evaluate()], expected)
