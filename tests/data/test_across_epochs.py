"""Pipelines that go on from epoch to epoch give what single epochs give, no more and no sooner."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_cases import make_loader

from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.prepare import prepare
from fourmin.training.data import loader as loader_module
from fourmin.training.data.loader import READ_AHEAD
from fourmin.training.data.order import OrderDigest, digest_of_order, epoch_permutation

LOADERS = ("dali", "torchvision")
AHEAD = {"dali": 3 + READ_AHEAD + 3, "torchvision": READ_AHEAD + 1}
"""Works that may be made before the batch in use: what DALI, its reader and its cache hold."""
EPOCH = 4
"""Steps: 36 images in batches of 8."""


@pytest.fixture(scope="module")
def folders(photo_tree, tmp_path_factory) -> dict[str, Path]:
    shards = tmp_path_factory.mktemp("shards")
    prepare([photo_tree[0]], shards, shard_bytes=40_000, workers=1)
    return {"tree": photo_tree[0], "shards": shards}


def make(name, folder, **changes):
    return make_loader(name, folder, Manifest.load(folder / MANIFEST_NAME), **changes)


@pytest.fixture(scope="module")
def single(photo_tree):
    """Epochs and evaluation as each gives them by itself: the batches, by loader and epoch."""
    found = {}
    for name in LOADERS:
        for epoch in range(1, 5):
            with make(name, photo_tree[0]) as loader:
                found[name, epoch] = list(loader.train_epoch(epoch))
        with make(name, photo_tree[0]) as loader:
            found[name, "val"] = list(loader.evaluate())
    return found


def same(found, expected) -> bool:
    return len(found) == len(expected) and all(
        torch.equal(one.indices, other.indices)
        and torch.equal(one.labels, other.labels)
        and torch.equal(one.images, other.images)
        for one, other in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("layout", ["tree", "shards"])
@pytest.mark.parametrize("cache", [0, 8])
def test_epochs_in_a_row_are_single_epochs_to_the_bit(name, layout, cache, folders, single):
    """With evaluations between them, begun before or not, and from any epoch on."""
    for first in (1, 3):
        with make(name, folders[layout], steps=4 * EPOCH, decoded_cache=cache) as loader:
            for epoch in range(first, 5):
                found = []
                for batch in loader.train_epoch(epoch):
                    found.append(batch)
                    if epoch != 2 and len(found) > EPOCH - 2:
                        loader.begin_evaluation()
                assert same(found, single[name, epoch])
                assert same(list(loader.evaluate()), single[name, "val"])
            assert same(list(loader.evaluate()), single[name, "val"])


plans = st.lists(
    st.tuples(
        st.integers(1, 4),  # the epoch
        st.integers(0, EPOCH),  # batches that are taken of it
        st.booleans(),  # whether its generator is closed, or just left
        st.booleans(),  # whether an evaluation follows
        st.booleans(),  # and was begun before
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("name", LOADERS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans, steps=st.none() | st.integers(1, 5 * EPOCH))
def test_whatever_is_asked_for_it_is_what_single_epochs_give(name, plan, steps, folders, single):
    with make(name, folders["tree"], steps=steps) as loader:
        for epoch, taken, closed, evaluated, begun in plan:
            there = EPOCH if steps is None else max(0, min(EPOCH, steps - (epoch - 1) * EPOCH))
            batches = loader.train_epoch(epoch)
            found = [batch for _, batch in zip(range(taken), batches, strict=False)]
            assert same(found, single[name, epoch][: min(taken, there)])
            if begun:
                loader.begin_evaluation()
            if closed:
                batches.close()
            del batches
            if evaluated:
                assert same(list(loader.evaluate()), single[name, "val"])


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("layout", ["tree", "shards"])
@pytest.mark.parametrize("cache", [0, 8])
@pytest.mark.parametrize("steps", [EPOCH + 2, 3 * EPOCH])
def test_no_more_is_made_ahead_than_within_an_epoch(
    name, layout, cache, steps, folders, monkeypatch
):
    """Nor beyond the last step of the run."""
    made = []
    batch_of = loader_module.Loader._training_batch
    monkeypatch.setattr(
        loader_module.Loader,
        "_training_batch",
        lambda self, epoch, indices: (made.append(epoch), batch_of(self, epoch, indices))[1],
    )
    used, most = 0, 0
    with make(name, folders[layout], steps=steps, decoded_cache=cache) as loader:
        for epoch in (1, 2, 3):
            for _ in loader.train_epoch(epoch):
                used += 1
                most = max(most, len(made) - used)
                assert len(made) <= steps
            if epoch == 1:
                assert made.count(2) >= 2, "the next epoch's were made while this one's were used"
    assert used == len(made) == steps
    assert most <= AHEAD[name]


@pytest.mark.parametrize("name", LOADERS)
def test_the_digest_is_of_what_was_consumed(name, folders):
    """The target is reached after the second of four epochs, while the third is made ready."""
    digest = OrderDigest()
    with make(name, folders["tree"], steps=4 * EPOCH) as loader:
        for epoch in (1, 2):
            digest.update(torch.cat([batch.indices for batch in loader.train_epoch(epoch)]))
    assert digest.hexdigest() == digest_of_order(11, (1, 2), 36, 8)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("layout", ["tree", "shards"])
def test_what_was_made_ahead_is_thrown_away_and_no_thread_is_left(name, layout, folders):
    before = threading.active_count()
    loader = make(name, folders[layout], steps=4 * EPOCH, threads=3)
    epoch = loader.train_epoch(1)
    for _ in range(EPOCH):
        next(epoch)
    for _ in range(3):
        loader.begin_evaluation()
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < 20
    assert threading.active_count() == before


@pytest.mark.parametrize("name", LOADERS)
def test_the_next_order_is_made_by_another_thread_and_once(name, folders, monkeypatch):
    made = []

    def permutation(seed, epoch, n):
        made.append((epoch, threading.current_thread() is threading.main_thread()))
        return epoch_permutation(seed, epoch, n)

    monkeypatch.setattr(loader_module, "epoch_permutation", permutation)
    with make(name, folders["tree"], steps=3 * EPOCH) as loader:
        for epoch in (1, 2, 3):
            for _ in loader.train_epoch(epoch):
                pass
    assert made == [(1, True), (2, False), (3, False)]


def test_reads_of_the_next_epoch_are_done_when_this_one_ends(folders, monkeypatch):
    """Its first batch waits for nothing: the samples have been read while the last was in use."""
    read = []
    with make("torchvision", folders["tree"], steps=2 * EPOCH) as loader:
        one = loader.read_file
        monkeypatch.setattr(
            loader, "read_file", lambda split, index: (read.append(index), one(split, index))[1]
        )
        list(loader.train_epoch(1))
        wanted = set(epoch_permutation(11, 2, 36)[:8].tolist())
        deadline = time.monotonic() + 20
        while not wanted <= set(read[EPOCH * 8 :]) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert wanted <= set(read[EPOCH * 8 :])


@pytest.mark.parametrize("name", LOADERS)
def test_nothing_is_opened_before_a_batch_is_asked_for(name, folders, monkeypatch, tmp_path):
    """A loader can be made, and warmed up, where the images are not there."""
    (tmp_path / MANIFEST_NAME).write_bytes((folders["tree"] / MANIFEST_NAME).read_bytes())
    with make(name, tmp_path, steps=EPOCH) as loader:
        loader.warm_up()
        batches = loader.train_epoch(1)
        with pytest.raises(Exception, match="No such file"):
            next(batches)


@pytest.mark.parametrize("layout", ["tree", "shards"])
@pytest.mark.parametrize("cache", [0, 1])
def test_a_warm_up_changes_no_batch(layout, cache, folders, single, tmp_path):
    """Nor does reading from a copy that is made after it."""
    copy = tmp_path / "copy"
    with make("dali", folders[layout], decoded_cache=cache, steps=2 * EPOCH) as loader:
        loader.warm_up()
        shutil.copytree(folders[layout], copy)
        loader.read_from(copy)
        assert same(list(loader.train_epoch(1)), single["dali", 1])
        assert same(list(loader.evaluate()), single["dali", "val"])
        assert same(list(loader.train_epoch(2)), single["dali", 2])


def test_a_warm_up_takes_the_sample_of_median_area(folders):
    with make("dali", folders["tree"]) as loader:
        work = loader.typical_batch("val")
        areas = loader.columns["val"][1] * loader.columns["val"][2]
        assert len(work.indices) == 8
        assert len(set(work.indices)) == 1
        assert areas[work.indices[0]] == sorted(areas)[len(areas) // 2]
