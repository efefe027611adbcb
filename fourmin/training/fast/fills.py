"""Zeros for kernels that add to memory: one fill a pass, in place of some before each kernel.

cuDNN fills what its convolutions with statistics add to, three fills for each of them, and a fill
of a few kilobytes takes the device as long as one of a megabyte. With memory of its own for each
convolution, one fill at the start of a pass does for all, and the others are taken out of the
captured graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

_ALIGNMENT = 256
_MOST_BYTES = 512 << 20


class ZeroedBlock:
    """Device memory in slots, all zero at the start of a pass.

    Slots that a pass asks for first are there from the next pass on.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._blocks: list[Tensor] = []
        self._slots: dict[object, Tensor] = {}
        self._wanted: dict[object, int] = {}
        self._bytes = 0

    def slot(self, owner: object, size: int) -> Tensor | None:
        """`owner`'s own [size] bytes, aligned to 256, to be added to once a pass; None where they
        are not there yet or there is no room for them.
        """
        if owner not in self._slots and self._bytes + size <= _MOST_BYTES:
            self._wanted[owner] = size
        return self._slots.get(owner)

    def fill(self) -> None:
        """Queue the zeros of a pass."""
        if self._wanted:
            sizes = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in self._wanted.values()]
            block = torch.empty(sum(sizes), dtype=torch.uint8, device=self._device)
            slots = block.split(sizes)
            for (owner, size), slot in zip(self._wanted.items(), slots, strict=True):
                self._slots[owner] = slot[:size]
            self._blocks.append(block)  # the older ones stay where graphs know them
            self._bytes += sum(sizes)
            self._wanted.clear()
        for block in self._blocks:
            block.zero_()

    def drop_other_fills(self, graph: torch.cuda.CUDAGraph) -> int:
        """Take the fills of single slots out of a graph that is kept and not yet instantiated.

        Returns how many there were. The graph stays as it is where a slot is filled at several
        places of the pass, and all of it without the package `cuda-bindings` (torch's own need
        from 2.10 on). Raises RuntimeError when CUDA refuses.
        """
        if not self._slots:
            return 0
        try:
            from cuda.bindings import runtime
        except ImportError:
            return 0
        slots = [(slot.data_ptr(), slot.data_ptr() + len(slot)) for slot in self._slots.values()]
        return _Nodes(runtime, graph.raw_cuda_graph()).drop_zero_fills(slots)


class _Nodes:
    """The nodes of a CUDA graph and what waits for what."""

    def __init__(self, runtime: Any, graph: int) -> None:
        self._runtime = runtime
        self._graph = runtime.cudaGraph_t(graph)
        # From CUDA 13 on these tell of the edges' kinds too; before, others of their names do.
        self._edges = self._of_12_or_13("cudaGraphGetEdges")
        self._add = self._of_12_or_13("cudaGraphAddDependencies")
        count = self._call(runtime.cudaGraphGetNodes, self._graph)[-1]
        nodes = self._call(runtime.cudaGraphGetNodes, self._graph, count)[0]
        self._nodes = {int(node): node for node in nodes}
        self._before: dict[int, set[int]] = {node: set() for node in self._nodes}
        self._after: dict[int, set[int]] = {node: set() for node in self._nodes}
        count = self._call(self._edges, self._graph)[-1]
        if count:
            first, then, *_ = self._call(self._edges, self._graph, count)
            for a, b in zip(first, then, strict=True):
                self._before[int(b)].add(int(a))
                self._after[int(a)].add(int(b))

    def drop_zero_fills(self, slots: Iterable[tuple[int, int]]) -> int:
        """Drop what fills a part of one of `slots` (addresses from, to) with zeros, and nothing
        else, where one chain of nodes does so.
        """
        filled = {node: place for node in self._nodes if (place := self._zeros(node))}
        dropped: list[int] = []
        for start, end in slots:
            inside = {n for n, (low, high) in filled.items() if start <= low and high <= end}
            if sum(not self._before[node] & inside for node in inside) == 1:
                dropped += inside
        new = self._without(dropped)
        for node in dropped:
            self._call(self._runtime.cudaGraphDestroyNode, self._nodes[node])
        if new:
            first, then = ([self._nodes[edge[side]] for edge in new] for side in (0, 1))
            kinds = [self._runtime.cudaGraphEdgeData() for _ in new]
            self._call(self._add, self._graph, first, then, kinds, len(new))
        return len(dropped)

    def _zeros(self, node: int) -> tuple[int, int] | None:
        """Addresses from and to that this node fills with zeros."""
        runtime = self._runtime
        kind = self._call(runtime.cudaGraphNodeGetType, self._nodes[node])[0]
        if kind != runtime.cudaGraphNodeType.cudaGraphNodeTypeMemset:
            return None
        fill = self._call(runtime.cudaGraphMemsetNodeGetParams, self._nodes[node])[0]
        if fill.value != 0 or fill.height != 1:
            return None
        start = int(fill.dst)
        return start, start + fill.elementSize * fill.width

    def _without(self, dropped: Iterable[int]) -> list[tuple[int, int]]:
        """The edges that must be there when these nodes are not."""
        old = {(a, b) for a, later in self._after.items() for b in later}
        gone = set(dropped)
        for node in gone:
            for a in self._before[node]:
                self._after[a].discard(node)
                self._after[a] |= self._after[node]
            for b in self._after[node]:
                self._before[b].discard(node)
                self._before[b] |= self._before[node]
        now = {(a, b) for a, later in self._after.items() for b in later if a not in gone}
        return sorted(now - old)

    def _of_12_or_13(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(self._runtime, f"{name}_v2", None) or getattr(
            self._runtime, name
        )
        return found

    def _call(self, function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
        error, *values = function(*arguments)
        if int(error):
            raise RuntimeError(f"{function.__name__}: {error!r}")
        return tuple(values)
