"""The data order: every sample once, disjoint over ranks, the same for any number of workers."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import augmentation_randoms

from fourmin.base.errors import FourminError
from fourmin.training.data.order import (
    OrderDigest,
    augmentation_randoms_of,
    digest_of_order,
    epoch_permutation,
    evaluation_share,
    global_order,
    rank_batch_size,
    rank_share,
    steps_per_epoch,
)

seeds = st.integers(0, 2**32 - 1)


def consumed(permutation, n, batch, world, accumulation):
    """What each rank takes over an epoch, in rank order."""
    return [
        np.concatenate(
            [
                rank_share(permutation, step, batch, rank, world, accumulation).ravel()
                for step in range(steps_per_epoch(n, batch))
            ]
        )
        for rank in range(world)
    ]


@pytest.mark.parametrize(
    ("seed", "epoch", "first"),
    [
        (0, 0, [338, 1112, 261, 724, 958, 333, 1221, 1268]),
        (0, 1, [503, 1206, 1111, 1238, 1413, 1185, 870, 633]),
        (42, 0, [1378, 569, 1321, 680, 1268, 274, 973, 909]),
    ],
)
def test_permutation_is_frozen(seed, epoch, first):
    assert epoch_permutation(seed, epoch, 1437)[:8].tolist() == first


def test_digest_is_frozen():
    assert (
        digest_of_order(7, range(2), 1437, 64)
        == "3455ad115eed8bab7ffb5855f3ce9ebac48674ebaf4e937f0757946679c6c7fb"
    )


@given(seeds, st.integers(0, 200), st.integers(1, 500))
def test_permutation_has_each_sample_once(seed, epoch, n):
    permutation = epoch_permutation(seed, epoch, n)
    assert permutation.dtype == np.int64
    assert np.array_equal(np.sort(permutation), np.arange(n))


@given(seeds, st.integers(0, 100))
def test_each_epoch_is_shuffled_anew(seed, epoch):
    one, next_one = (epoch_permutation(seed, e, 200) for e in (epoch, epoch + 1))
    # A random permutation of 200 keeps one element in place on average.
    assert (one == next_one).sum() < 20
    assert (one == np.arange(200)).sum() < 20
    assert (one == epoch_permutation((seed + 1) % 2**32, epoch, 200)).sum() < 20


def test_a_seed_and_an_epoch_are_not_interchangeable():
    assert not np.array_equal(epoch_permutation(1, 2, 100), epoch_permutation(2, 1, 100))


@settings(deadline=None)
@given(seeds, st.integers(1, 6), st.integers(1, 3), st.integers(1, 5), st.integers(0, 40))
def test_ranks_get_disjoint_shares_that_make_the_global_batch(seed, world, acc, micro, extra):
    batch = world * acc * micro
    n = 2 * batch + extra
    permutation = epoch_permutation(seed, 0, n)
    shares = consumed(permutation, n, batch, world, acc)
    used = n // batch * batch
    for one, other in itertools.combinations(shares, 2):
        assert not set(one.tolist()) & set(other.tolist())
    assert {len(share) for share in shares} == {used // world}
    assert np.array_equal(global_order(shares, batch), permutation[:used])


@given(seeds, st.integers(64, 300))
def test_digest_is_the_same_for_1_2_and_4_workers(seed, n):
    permutation = epoch_permutation(seed, 5, n)
    expected = digest_of_order(seed, [5], n, 16)
    for world, acc in ((1, 1), (2, 1), (4, 1), (1, 4), (2, 2)):
        digest = OrderDigest()
        digest.update_from_ranks(consumed(permutation, n, 16, world, acc), 16)
        assert digest.hexdigest() == expected
        assert digest.count == n // 16 * 16


def test_digest_sees_two_ranks_with_the_same_shard():
    permutation = epoch_permutation(1, 0, 64)
    rank0 = consumed(permutation, 64, 16, 2, 1)[0]
    digest = OrderDigest()
    digest.update_from_ranks([rank0, rank0], 16)
    assert digest.hexdigest() != digest_of_order(1, [0], 64, 16)


def test_digest_is_sha256_of_little_endian_int64():
    digest = OrderDigest()
    digest.update([1, 2])
    digest.update(np.array([3], dtype=">i4"))
    assert digest.hexdigest() == hashlib.sha256(np.array([1, 2, 3], "<i8").tobytes()).hexdigest()


def test_digest_of_epochs_concatenates_and_stops_at_max_steps():
    whole = np.concatenate([epoch_permutation(9, e, 50)[:48] for e in (1, 2)])
    for steps, samples in ((None, 96), (5, 80), (2, 32)):
        expected = hashlib.sha256(whole[:samples].astype("<i8").tobytes()).hexdigest()
        assert digest_of_order(9, [1, 2], 50, 16, steps) == expected


def test_uneven_consumption_is_refused():
    for uneven in ([[1, 2], [3]], [[1, 2, 3], [4, 5, 6]]):
        with pytest.raises(ValueError, match="whole steps"):
            global_order(uneven, 4)


@given(st.integers(0, 2000), st.integers(1, 40))
def test_evaluation_shares_hold_every_image_once(n, world):
    shares = [evaluation_share(n, rank, world) for rank in range(world)]
    assert np.array_equal(np.concatenate(shares), np.arange(n))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(seeds, st.integers(0, 90), st.integers(1, 30), st.integers(1, 25), st.data())
def test_randoms_of_a_few_samples_are_those_of_all(seed, epoch, n, k, data):
    """Numbers of one stream are the oracle of those that are looked up."""
    indices = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=8)), dtype=np.int64)
    everything = augmentation_randoms(seed, epoch, n, k)
    assert everything.shape == (n, k)
    assert ((everything >= 0) & (everything < 1)).all()
    assert np.array_equal(augmentation_randoms_of(seed, epoch, indices, k), everything[indices])


def test_crops_and_order_come_from_streams_of_their_own():
    def words(seed, stream, epoch, count):
        key = np.array([seed, stream], dtype=np.uint64)
        return np.random.Philox(key=key, counter=[0, 0, 0, epoch]).random_raw(count)

    order = np.argsort(words(9, 1, 4, 50), kind="stable")
    assert np.array_equal(epoch_permutation(9, 4, 50), order)
    upper = (words(9, 2, 4, 50 * 4) >> np.uint64(11)) * 2.0**-53
    found = augmentation_randoms_of(9, 4, np.arange(50), 2)
    assert np.array_equal(found, upper.reshape(50, 4)[:, :2])


def test_randoms_are_uniform_and_new_in_each_epoch():
    randoms = augmentation_randoms(5, 0, 4000, 3)
    assert np.abs(randoms.mean(axis=0) - 0.5).max() < 0.02
    assert np.abs(randoms.var(axis=0) - 1 / 12).max() < 0.005
    assert not (randoms == augmentation_randoms(5, 1, 4000, 3)).any()
    assert abs(np.corrcoef(randoms.T)[0, 1]) < 0.05


@pytest.mark.parametrize(("batch", "world", "acc"), [(10, 3, 1), (8, 2, 3), (2, 4, 1)])
def test_a_batch_that_cannot_be_shared_is_refused(batch, world, acc):
    with pytest.raises(FourminError, match="cannot be shared"):
        rank_batch_size(batch, world, acc)


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(FourminError, match="larger than the training set"):
        steps_per_epoch(10, 11)


@pytest.mark.parametrize("step", [-1, 3])
def test_a_step_beyond_the_epoch_is_refused(step):
    with pytest.raises(ValueError, match="not one of the epoch"):
        rank_share(np.arange(15), step, 5, 0, 1)
