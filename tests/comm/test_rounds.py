"""What crosses the host boundary, how many rounds it takes, and how pieces are cut: no network."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fourmin.recipe.calls import MOST_PIECES
from fourmin.recipe.topology import Topology
from fourmin.training.comm.halving_doubling import HalvingDoublingAllReduce
from fourmin.training.comm.ring import RingAllReduce
from fourmin.training.comm.rounds import Message, Rounds, Scratch, pieces


def simulate(algorithms: list[object], numel: int) -> tuple[list[Tensor], Counter, int]:
    """All ranks in one process: results, elements sent by (from, to), and the rounds."""
    # A bit for each rank: sums are exact, and tell which addend is missing or there twice.
    tensors = [
        torch.full((numel,), float(1 << rank), dtype=torch.float64)
        for rank in range(len(algorithms))
    ]
    running: list[Rounds] = [a._rounds(t) for a, t in zip(algorithms, tensors, strict=True)]
    sent: Counter = Counter()
    waiting: list[list[Message]] = [[] for _ in algorithms]
    rounds = 0
    while True:
        yielded = [next(each, None) for each in running]
        if all(messages is None for messages in yielded):
            assert not any(waiting), "announced, but never due"
            return tensors, sent, rounds
        assert all(messages is not None for messages in yielded), "ranks differ in their rounds"
        rounds += 1
        mail: dict[tuple[int, int], Tensor] = {}
        for rank, messages in enumerate(yielded):
            waiting[rank] += messages or []
            for message in waiting[rank]:
                if message.outgoing:
                    assert message.due == 0
                    assert (rank, message.peer) not in mail
                    mail[rank, message.peer] = message.tensor.clone()
                    sent[rank, message.peer] += message.tensor.numel()
        for rank, messages in enumerate(waiting):
            for message in messages:
                if not message.outgoing and message.due == 0:
                    message.tensor.copy_(mail.pop((message.peer, rank)))
            waiting[rank] = [replace(m, due=m.due - 1) for m in messages if m.due]
        assert not mail, "sent, but nobody receives it"


def across(sent: Counter, ranks_per_node: int) -> int:
    """Elements that leave the first host."""
    return sum(
        count
        for (source, target), count in sent.items()
        if source // ranks_per_node == 0 and target // ranks_per_node != 0
    )


def on(world: int, node: int, group: int) -> list[object]:
    return [
        HalvingDoublingAllReduce(Topology.build(rank, world, node, group), 1 << 20)
        for rank in range(world)
    ]


@settings(deadline=None, max_examples=400)
@example(numel=1, nodes=8, node=1, group=0)
@given(
    numel=st.integers(0, 40),
    nodes=st.integers(1, 5),
    node=st.integers(1, 6),
    group=st.integers(0, 6),
)
def test_any_grid_of_ranks_sums_in_step(numel: int, nodes: int, node: int, group: int) -> None:
    world = nodes * node
    tensors, _, _ = simulate(on(world, node, min(group, node)), numel)
    exact = torch.full((numel,), float((1 << world) - 1), dtype=torch.float64)
    assert all(torch.equal(tensor, exact) for tensor in tensors)


def test_two_hosts_exchange_the_tensor_once_in_each_direction() -> None:
    _, sent, _ = simulate(on(8, 4, 0), 1600)
    assert across(sent, 4) == 1600
    ring = [RingAllReduce(range(8), rank) for rank in range(8)]
    assert across(simulate(ring, 1600)[1], 4) == 2 * 1600 * 7 // 8


def test_the_largest_messages_go_to_the_nearest_ranks() -> None:
    _, sent, _ = simulate(on(16, 4, 0), 1600)
    # There and back: halves at distance 1, quarters at 2; then eighths of what is left, n/4.
    assert sent[0, 1] == 2 * 800
    assert sent[0, 2] == 2 * 400
    assert sent[0, 4] == 2 * 200
    assert sent[0, 8] == 200  # the swap


@pytest.mark.parametrize(
    ("world", "node", "rounds"),
    [
        (8, 4, 2 + 1 + 2),
        (8, 8, 2 * 3 - 1),
        (6, 3, 1 + 1 + 1 + 1 + 1),
        (12, 4, 2 + (1 + 1 + 1) + 2),
    ],
)
def test_rounds(world: int, node: int, rounds: int) -> None:
    assert simulate(on(world, node, 0), 64)[2] == rounds


def test_surplus_ranks_fold_inside_their_host() -> None:
    _, sent, _ = simulate(on(6, 3, 0), 100)
    assert sent[2, 0] == sent[0, 2] == 100
    assert sent[5, 3] == sent[3, 5] == 100
    assert across(sent, 3) == 100


@settings(deadline=None)
@given(numel=st.integers(1, 5000), pipeline_bytes=st.integers(1, 4096))
def test_pieces_cover_the_tensor_and_are_not_too_many(numel: int, pipeline_bytes: int) -> None:
    tensor = torch.arange(numel, dtype=torch.float32)
    cut = pieces(tensor, pipeline_bytes)
    assert torch.equal(torch.cat(list(cut)), tensor)
    assert len(cut) <= MOST_PIECES
    if numel * 4 <= pipeline_bytes:
        assert len(cut) == 1


def test_scratch_gives_a_buffer_again_and_keeps_none_of_another_type() -> None:
    scratch = Scratch()
    like = torch.zeros(1)
    first = scratch.take(like, 10)
    second = scratch.take(like, 10)
    assert first.data_ptr() != second.data_ptr()
    scratch.give(first)
    assert scratch.take(like, 11).numel() >= 11
    assert scratch.take(like, 5).data_ptr() == first.data_ptr()
    scratch.give(first)
    assert scratch.take(like.half(), 5).dtype == torch.float16
