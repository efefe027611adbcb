"""The rule of buckets: order, threshold, and a small last one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fourmin.recipe.buckets import TAIL, partition

KIB, MIB = 1 << 10, 1 << 20


def test_the_last_gradients_of_a_large_last_bucket_go_alone() -> None:
    # In the order of registration: two early layers, then what fills two buckets.
    sizes = [300 * KIB, 600 * KIB, 3 * MIB, 5 * MIB, 4 * MIB]
    assert partition(sizes, 4 * MIB) == [[4], [3], [2], [1, 0]]


def test_a_small_last_bucket_stays_whole() -> None:
    assert partition([300 * KIB, 600 * KIB, 4 * MIB], 4 * MIB) == [[2], [1, 0]]


def test_a_last_gradient_larger_than_the_tail_takes_its_bucket_along() -> None:
    assert partition([2 * MIB, 600 * KIB, 4 * MIB], 4 * MIB) == [[2], [1, 0]]


def test_a_tail_may_be_exactly_as_large_as_allowed() -> None:
    assert partition([TAIL, 2 * MIB], 4 * MIB) == [[1], [0]]
    assert partition([TAIL + 1, 2 * MIB], 4 * MIB) == [[1, 0]]


def test_the_tail_is_no_larger_than_allowed_as_a_whole() -> None:
    sizes = [TAIL // 2, TAIL // 2, 1, 2 * MIB]
    assert partition(sizes, 4 * MIB) == [[3, 2], [1, 0]]


@given(
    sizes=st.lists(st.integers(0, 3 * MIB), max_size=30),
    threshold=st.integers(0, 8 * MIB),
)
def test_every_gradient_goes_once_in_reverse_order_and_only_the_tail_is_cut_off(
    sizes: list[int], threshold: int
) -> None:
    parts = partition(sizes, threshold)
    assert [index for part in parts for index in part] == list(reversed(range(len(sizes))))
    assert all(parts)
    weights = [sum(sizes[index] for index in part) for part in parts]
    # Without the tail's cut, every bucket but the last reaches the threshold, and none without
    # its last gradient does.
    joined = weights
    if len(parts) > 1 and weights[-2] < threshold:
        assert weights[-1] <= TAIL < weights[-2] + weights[-1]
        joined = [*weights[:-2], weights[-2] + weights[-1]]
        parts = [*parts[:-2], parts[-2] + parts[-1]]
    assert all(weight >= threshold for weight in joined[:-1])
    for part in parts:
        assert sum(sizes[index] for index in part[:-1]) < max(threshold, 1)
