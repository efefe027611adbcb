"""Both loaders on shards: what they give is what they give on the tree, and faults are named."""

from __future__ import annotations

import hashlib
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from loader_cases import make_loader

from fourmin.base.errors import FourminError
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.prepare import prepare
from fourmin.datasets.shards import ShardIndex
from fourmin.training.data.order import OrderDigest, digest_of_order
from fourmin.training.data.source import ShardSource, _allow_open_files

LOADERS = ("dali", "torchvision")


@pytest.fixture(scope="module")
def shards(photo_tree, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    done = prepare([photo_tree[0]], folder, shard_bytes=40_000, workers=1)
    assert done.shards > 3
    return folder


def make(name, folder, **changes):
    return make_loader(name, folder, Manifest.load(folder / MANIFEST_NAME), **changes)


def batches(name, folder, *epochs, **changes):
    with make(name, folder, **changes) as loader:
        return [
            batch
            for source in [*map(loader.train_epoch, epochs), loader.evaluate()]
            for batch in source
        ]


@pytest.mark.parametrize("name", LOADERS)
def test_batches_are_the_trees_to_the_bit(name, photo_tree, shards):
    """Order, labels, crops and pixels, in training and in evaluation."""
    pairs = zip(batches(name, photo_tree[0], 0, 3), batches(name, shards, 0, 3), strict=True)
    for one, other in pairs:
        assert torch.equal(one.indices, other.indices)
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.images, other.images)


def pixels_by_sample(batches) -> dict[int, str]:
    return {
        index: hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()
        for batch in batches
        for index, image in zip(batch.indices.tolist(), batch.images, strict=True)
    }


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("world", [1, 2, 4])
def test_any_number_of_workers_takes_the_order_and_the_crops_of_the_seed(
    name, world, photo_tree, shards
):
    """The digest of the order, and every sample's pixels, which are one worker's on the tree.

    That one has gone through an epoch before, and the others begin anew as after a restart.
    """
    digest, pixels = OrderDigest(), {}
    for epoch in (0, 1):
        consumed = []
        for rank in range(world):
            with make(name, shards, rank=rank, world_size=world) as loader:
                found = list(loader.train_epoch(epoch))
            consumed.append(torch.cat([batch.indices for batch in found]).numpy())
            if epoch == 1:
                pixels |= pixels_by_sample(found)
        digest.update_from_ranks(consumed, 8)
    assert digest.hexdigest() == digest_of_order(11, range(2), 36, 8)
    with make(name, photo_tree[0]) as loader:
        assert pixels_by_sample(loader.train_epoch(0)) != pixels
        assert pixels_by_sample(loader.train_epoch(1)) == pixels


@pytest.fixture
def damaged(shards, tmp_path):
    """A copy of the shards, a training sample, and how to change its bytes on disk."""
    folder = Path(shutil.copytree(shards, tmp_path / "shards"))
    manifest = Manifest.load(folder / MANIFEST_NAME)
    split, index = manifest.split("train"), ShardIndex.load(folder, manifest)
    number = 7
    shard = next(s for s in index.shards if s.split == "train" and number in s.indices())

    def write(at: int, data: bytes) -> None:
        with (folder / shard.name).open("r+b") as file:
            file.seek(index.offsets["train"][number] + at)
            file.write(data)

    name = f"{folder}/{shard.name}, sample {number:09d} (train/{split.paths[number]})"
    return folder, name, split.sizes[number], write


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    ("at", "why"),
    [(-512, "tar header"), (-380, "tar header"), (0, "decode"), (1, "decode")],
    ids=["name", "size", "first byte", "second byte"],
)
def test_a_corrupted_byte_is_named_with_shard_and_sample(name, at, why, damaged):
    folder, sample, _, write = damaged
    write(at, b"\x01")
    with pytest.raises(FourminError) as caught:
        batches(name, folder, 0, global_batch_size=4)
    assert sample in caught.value.what
    assert why in caught.value.what + caught.value.why
    assert f"fourmin data check {folder}" in caught.value.next_step


@pytest.mark.parametrize("name", LOADERS)
def test_a_shard_that_is_cut_or_gone_is_named(name, shards, tmp_path):
    folder = Path(shutil.copytree(shards, tmp_path / "shards"))
    last = sorted(folder.glob("train-*.tar"))[-1]
    last.write_bytes(last.read_bytes()[:5000])
    with pytest.raises(FourminError, match="has changed") as caught:
        batches(name, folder, 0, global_batch_size=4)
    assert last.name in caught.value.what
    last.unlink()
    with pytest.raises(FourminError, match="No such file") as caught:
        batches(name, folder, 0, global_batch_size=4)
    assert last.name in caught.value.what


def test_shards_are_opened_once_and_closed(shards):
    manifest = Manifest.load(shards / MANIFEST_NAME)
    source = ShardSource(shards, manifest)
    split = manifest.split("train")
    for index in np.random.default_rng(0).permutation(len(split)).tolist():
        assert len(source.read(split, index)) == split.sizes[index]
    held = dict(source._open)
    assert set(held) == {path.name for path in shards.glob("train-*.tar")}
    source.close()
    assert not source._open


def test_the_limit_on_open_files_is_raised_or_named():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
        _allow_open_files(200)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 200
        with pytest.raises(FourminError, match="open at once") as caught:
            _allow_open_files(1 << 62)
        assert "ulimit -n" in caught.value.next_step
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
