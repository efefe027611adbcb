"""Fills taken out of a graph, against a runtime of a few lines that keeps nodes and edges."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fast_cases import Learnable, make

from fourmin.training.fast import epilogue
from fourmin.training.fast.fills import ZeroedBlock, _Nodes

KERNEL, MEMSET = "kernel", "memset"


class Runtime:
    """What `_Nodes` asks of CUDA's runtime, of version 13 or 12."""

    cudaGraphNodeType = SimpleNamespace(cudaGraphNodeTypeMemset=MEMSET)

    def __init__(self, nodes: list[Any], edges: set[tuple[int, int]], version: int) -> None:
        self.nodes = dict(enumerate(nodes))
        self.edges = edges
        end = "_v2" if version == 12 else ""
        setattr(self, f"cudaGraphGetEdges{end}", self._edges)
        setattr(self, f"cudaGraphAddDependencies{end}", self._add)
        if version == 12:  # the old ones, which must not be asked
            self.cudaGraphGetEdges = self.cudaGraphAddDependencies = None

    def cudaGraph_t(self, handle: int) -> int:
        return handle

    def cudaGraphEdgeData(self) -> str:
        return "default"

    def cudaGraphGetNodes(self, _graph: int, count: int = 0) -> tuple[Any, ...]:
        return 0, list(self.nodes)[:count], len(self.nodes)

    def cudaGraphNodeGetType(self, node: int) -> tuple[Any, ...]:
        return 0, KERNEL if self.nodes[node] is None else MEMSET

    def cudaGraphMemsetNodeGetParams(self, node: int) -> tuple[Any, ...]:
        start, width, value = self.nodes[node]
        fill = {"dst": start, "elementSize": 1, "width": width, "height": 1, "value": value}
        return 0, SimpleNamespace(**fill)

    def cudaGraphDestroyNode(self, node: int) -> tuple[Any, ...]:
        del self.nodes[node]
        self.edges = {edge for edge in self.edges if node not in edge}
        return (0,)

    def _edges(self, _graph: int, count: int = 0) -> tuple[Any, ...]:
        listed = sorted(self.edges)[:count]
        return (
            0,
            [a for a, _ in listed],
            [b for _, b in listed],
            ["default"] * count,
            len(self.edges),
        )

    def _add(self, _graph: int, first: Any, then: Any, kinds: Any, count: int) -> tuple[Any, ...]:
        new = set(zip(first, then, strict=True))
        assert len(new) == len(kinds) == count
        if new & self.edges:
            return (1,)  # as CUDA says of an edge that is there
        self.edges |= new
        return (0,)


def chain(*nodes: Any, version: int = 13) -> Runtime:
    """Nodes that follow each other; None is a kernel, (address, bytes, value) a fill."""
    return Runtime(list(nodes), {(i, i + 1) for i in range(len(nodes) - 1)}, version)


@pytest.mark.parametrize("version", [12, 13])
def test_a_chain_of_fills_goes_and_its_neighbours_meet(version: int) -> None:
    runtime = chain(None, (256, 64, 0), (320, 4, 0), None, (512, 8, 0), None, version=version)
    assert _Nodes(runtime, 7).drop_zero_fills([(256, 384), (512, 520)]) == 3
    assert runtime.nodes == {0: None, 3: None, 5: None}
    assert runtime.edges == {(0, 3), (3, 5)}


def test_branches_stay_what_waits_for_what() -> None:
    """Two kernels before a fill, two behind it, one edge past it."""
    runtime = Runtime([None, None, (0, 4, 0), None, None], {(0, 2), (1, 2), (2, 3), (2, 4)}, 13)
    runtime.edges.add((0, 3))
    assert _Nodes(runtime, 7).drop_zero_fills([(0, 4)]) == 1
    assert runtime.edges == {(0, 3), (0, 4), (1, 3), (1, 4)}


@pytest.mark.parametrize(
    "fill",
    [(256, 200, 0), (200, 64, 0), (256, 64, 1), (1024, 64, 0)],
    ids=["longer", "earlier", "not zero", "elsewhere"],
)
def test_other_fills_stay(fill: tuple[int, int, int]) -> None:
    runtime = chain(None, fill, None)
    assert _Nodes(runtime, 7).drop_zero_fills([(256, 384)]) == 0
    assert len(runtime.nodes) == 3


def test_a_slot_that_is_filled_twice_in_a_pass_keeps_its_fills() -> None:
    runtime = chain((256, 64, 0), None, (256, 64, 0), None)
    assert _Nodes(runtime, 7).drop_zero_fills([(256, 384)]) == 0


def test_what_cuda_refuses_is_told() -> None:
    runtime = chain(None, (0, 4, 0), None)
    runtime.cudaGraphDestroyNode = lambda _node: (9,)
    runtime.cudaGraphDestroyNode.__name__ = "cudaGraphDestroyNode"
    with pytest.raises(RuntimeError, match="cudaGraphDestroyNode: 9"):
        _Nodes(runtime, 7).drop_zero_fills([(0, 4)])


def test_slots_are_apart_zero_at_a_pass_and_stay_where_they_are() -> None:
    block = ZeroedBlock(torch.device("cpu"))
    assert block.slot("a", 100) is None  # not before the next pass
    assert block.slot("b", 8) is None
    block.fill()
    a, b = block.slot("a", 100), block.slot("b", 8)
    assert a is not None
    assert b is not None
    assert (len(a), len(b)) == (100, 8)
    a.fill_(1)
    assert b.sum() == 0
    b.fill_(1)
    assert block.slot("c", 4) is None
    block.fill()
    assert a.sum() == b.sum() == 0
    again = block.slot("a", 100)
    assert again is not None
    assert again.data_ptr() == a.data_ptr()
    assert block.slot("huge", 1 << 40) is None
    block.fill()
    assert block.slot("huge", 1 << 40) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.skipif(not epilogue.available(), reason="needs nvidia-cudnn-frontend")
def test_a_step_without_fills_is_the_step(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.bindings")
    real, dropped = ZeroedBlock.drop_other_fills, []
    monkeypatch.setattr(
        ZeroedBlock, "drop_other_fills", lambda self, graph: dropped.append(real(self, graph))
    )
    losses = []
    for use_graphs in (False, True):
        fast = make("fast", "resnet20", device, "fp16", use_graphs=use_graphs)
        data = Learnable(device, 32)
        losses.append([fast.step([data.batch(64)])[0].item() for _ in range(20)])
        fast.reducer.close()
    assert dropped[0] >= 2 * 19
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
