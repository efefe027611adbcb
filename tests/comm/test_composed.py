"""All-reduces composed of collectives: their calls as data, counted, and made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from local_world import LocalWorld

from fourmin.recipe.calls import MOST_PIECES, Call, Stage, calls, hierarchical, piece_sizes, torus
from fourmin.recipe.topology import Topology

GetWorld = Callable[[int], LocalWorld]
Elements = list[int]


def collective(stage: Stage, call: Call, pieces: list[Elements]) -> None:
    """What a collective does to the pieces of its ranks, in the textbook's words."""
    end = call.start + call.count
    parts = [piece[call.start : end] for piece in pieces]
    total = [sum(column) for column in zip(*parts, strict=True)]
    share = call.count // len(pieces)
    for place, piece in enumerate(pieces):
        own = slice(call.start + place * share, call.start + (place + 1) * share)
        if stage.kind == "reduce":
            piece[call.start : end] = total if place == 0 else [-1] * call.count
        elif stage.kind == "reduce_scatter":
            kept = total[place * share : (place + 1) * share]
            piece[call.start : end] = [-1] * call.count
            piece[own] = kept
        elif stage.kind == "all_reduce":
            piece[call.start : end] = total
        elif stage.kind == "broadcast":
            piece[call.start : end] = parts[0]
        else:
            for other, values in enumerate(parts):
                at = slice(other * share, (other + 1) * share)
                piece[call.start + at.start : call.start + at.stop] = values[at]


def simulate(stages: tuple[Stage, ...], world: int, sizes: list[int]) -> list[list[Elements]]:
    """All ranks in one process, each waiting in every call for its peers.

    A bit for each rank: sums are exact, and tell which addend is missing or there twice. Raises
    AssertionError where ranks wait for each other in a circle.
    """
    held = [[[1 << rank] * size for size in sizes] for rank in range(world)]
    todo = [list(reversed(list(calls(stages, sizes, rank)))) for rank in range(world)]
    while any(todo):
        ready = [
            rank for rank in range(world)
            if todo[rank] and todo[rank][-1].ranks[0] == rank
            and all(todo[p] and todo[p][-1] == todo[rank][-1] for p in todo[rank][-1].ranks)
        ]  # fmt: skip
        assert ready, "every rank waits for one that waits"
        for rank in ready:
            call = todo[rank][-1]
            stage = stages[call.stage]
            collective(stage, call, [held[peer][call.piece] for peer in call.ranks])
            for peer in call.ranks:
                todo[peer].pop()
    return held


@settings(deadline=None, max_examples=300)
@example(nodes=8, node=1, group=0, numel=9, pipeline_bytes=4, compose=torus)
@example(nodes=1, node=7, group=4, numel=4000, pipeline_bytes=4, compose=torus)
@given(
    nodes=st.integers(1, 5),
    node=st.integers(1, 6),
    group=st.integers(0, 6),
    numel=st.integers(1, 4000),
    pipeline_bytes=st.sampled_from([4, 256, 1 << 20]),
    compose=st.sampled_from([hierarchical, torus]),
)
def test_any_grid_of_ranks_sums_and_nobody_waits_in_a_circle(
    nodes: int, node: int, group: int, numel: int, pipeline_bytes: int, compose: Any
) -> None:
    world = nodes * node
    stages = compose(Topology.build(0, world, node, min(group, node)))
    sizes = piece_sizes(stages, numel, 4, pipeline_bytes)
    for held in simulate(stages, world, sizes):
        assert all(piece == [(1 << world) - 1] * len(piece) for piece in held)


@given(
    numel=st.integers(1, 1 << 28),
    itemsize=st.sampled_from([2, 4]),
    node=st.integers(1, 9),
    compose=st.sampled_from([hierarchical, torus]),
)
def test_pieces_cover_the_tensor_and_are_bounded(
    numel: int, itemsize: int, node: int, compose: Any
) -> None:
    stages = compose(Topology.build(0, 4 * node, node))
    sizes = piece_sizes(stages, numel, itemsize)
    columns = node if compose is torus else 1
    assert 0 <= sum(sizes) - numel < columns
    assert all(size % columns == 0 for size in sizes)
    assert len(sizes) <= MOST_PIECES
    assert max(sizes) == sizes[0]
    if numel * itemsize <= 1 << 20 or node == 1:
        assert len(sizes) == 1


def test_stages_of_several_pieces_go_on_at_the_same_time() -> None:
    stages = hierarchical(Topology.build(0, 16, 8))
    made = list(calls(stages, [64] * 5, 0))
    by_tick = [[call.piece for call in made if call.tick == tick] for tick in range(7)]
    assert by_tick == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4], [4]]
    kinds = [stages[call.stage].kind for call in made if call.tick == 3]
    assert kinds == ["broadcast", "all_reduce", "reduce"]


REDUCED = {"reduce": 1, "broadcast": 1}
SHARED_OUT = {"reduce_scatter": 1, "all_gather": 1}
ACROSS = {"all_reduce": 1}


@pytest.mark.parametrize(
    ("name", "size", "group_size", "expected"),
    [
        ("hierarchical", 4, 2, [REDUCED | ACROSS, REDUCED] * 2),
        ("hierarchical", 8, 4, [REDUCED | ACROSS, REDUCED, REDUCED, REDUCED] * 2),
        ("hierarchical", 6, 2, [REDUCED | ACROSS, REDUCED] * 3),
        ("hierarchical", 5, 2, [REDUCED | ACROSS, REDUCED] * 2 + [ACROSS]),
        ("hierarchical", 2, 2, [REDUCED] * 2),
        ("hierarchical", 2, 1, [ACROSS] * 2),
        ("torus", 4, 2, [SHARED_OUT | ACROSS] * 4),
        ("torus", 8, 4, [SHARED_OUT | ACROSS] * 8),
        ("torus", 6, 2, [SHARED_OUT | ACROSS] * 6),
        ("torus", 3, 3, [SHARED_OUT] * 3),
        # One row has a rank beyond the three columns, which gives to the first.
        ("torus", 7, 4, [REDUCED | SHARED_OUT | ACROSS, *[SHARED_OUT | ACROSS] * 2, REDUCED,
                         *[SHARED_OUT | ACROSS] * 3]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("numel", "pieces"), [(5, 1), (4608, 4)])
def test_the_collectives_of_each_stage(
    world: GetWorld,
    name: str,
    size: int,
    group_size: int,
    expected: list[dict[str, int]],
    numel: int,
    pieces: int,
) -> None:
    by_rank = world(size).run(
        "counted", name=name, numel=numel, group_size=group_size, pipeline_bytes=4608 // 4
    )
    if expected[0] in (ACROSS, SHARED_OUT):
        pieces = 1  # nothing to overlap
    assert by_rank == [dict.fromkeys(each, pieces) for each in expected]


LONG = (pytest.mark.slow, pytest.mark.timeout(3000))
GRIDS = [("hierarchical", 4, 2), ("torus", 4, 2), ("torus", 7, 4), ("hierarchical", 6, 2)]


@pytest.mark.parametrize(("name", "size", "group_size"), GRIDS)
@pytest.mark.parametrize("steps", [300, pytest.param(10_000, marks=LONG)])
def test_ranks_that_come_late_hang_nobody(
    world: GetWorld, name: str, size: int, group_size: int, steps: int
) -> None:
    for seed in range(steps // 100):
        said = world(size).run(
            "delayed_steps", name=name, steps=100, group_size=group_size, seed=seed
        )
        assert said == [""] * size
