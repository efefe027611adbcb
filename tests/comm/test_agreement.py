from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from local_world import LocalWorld

from fourmin.training.comm.agreement import assert_same_on_all_ranks, tensor_digest

GetWorld = Callable[[int], LocalWorld]


def test_ranks_that_agree_pass(world: GetWorld) -> None:
    assert world(4).run("compare_digest", odd_ranks=[]) == [""] * 4


@pytest.mark.parametrize(
    ("odd", "groups"),
    [([3], ["ranks 0-2: ", "rank 3: "]), ([0, 2, 3], ["ranks 0, 2-3: ", "rank 1: "])],
)
def test_ranks_that_differ_are_named_on_every_rank(
    world: GetWorld, odd: list[int], groups: list[str]
) -> None:
    messages = world(4).run("compare_digest", odd_ranks=odd)
    assert len(set(messages)) == 1
    assert "weights differ between ranks" in messages[0]
    assert "exit 3" in messages[0]
    for text in groups:
        assert text in messages[0]


def test_a_known_sum_is_found_and_a_rank_that_spoils_it_is_noticed(world: GetWorld) -> None:
    assert world(3).run("known_sum", spoiled_by=None) == [""] * 3
    for rank, message in enumerate(world(3).run("known_sum", spoiled_by=1)):
        assert f"gave rank {rank} another sum" in message
        assert "1 of 4096 are wrong" in message


def test_without_a_process_group_there_is_nothing_to_compare() -> None:
    assert_same_on_all_ranks("weights", "abc")


def test_a_digest_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 64"):
        assert_same_on_all_ranks("weights", "x" * 65)


def test_digest_covers_bits_type_shape_and_order() -> None:
    base = torch.arange(6.0).reshape(2, 3)
    variants = [
        [base],
        [base + 1e-7],
        [base.double()],
        [base.reshape(3, 2)],
        [base.half()],
        [base, torch.ones(1)],
        [torch.ones(1), base],
        [-torch.zeros(2)],
        [torch.zeros(2)],
        [],
    ]
    assert len({tensor_digest(v) for v in variants}) == len(variants)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_digest_ignores_the_memory_format(dtype: torch.dtype) -> None:
    image = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).to(dtype)
    other = image.to(memory_format=torch.channels_last)
    assert tensor_digest([image]) == tensor_digest([other])
    assert tensor_digest([torch.tensor(1).to(dtype)]) == tensor_digest([torch.tensor(1).to(dtype)])
    assert tensor_digest([torch.empty(0, dtype=dtype)])
