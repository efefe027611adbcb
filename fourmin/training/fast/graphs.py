"""CUDA graphs of a step, cut where the host must act between two of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

Action = Callable[[], None]
Cut = Callable[[Action], None]
Body = Callable[[Cut], None]
Edit = Callable[[torch.cuda.CUDAGraph], object]


def at_once(action: Action) -> None:
    """The cut of a body that runs without a graph."""
    action()


def run(body: Body) -> None:
    """Do what `body` says now, without a graph."""
    body(at_once)


class Segments:
    """The device work of a body as CUDA graphs; its actions run on the host between them.

    Actions are for what must not be captured, such as collectives over a process group whose
    order other ranks share. All segments use one memory pool: replay them in order only, and
    never two `Segments` of one pool at the same time.
    """

    def __init__(self, body: Body, pool: _POOL_HANDLE | None, edit: Edit | None = None) -> None:
        """Capture. `body` must have run before, so that nothing is compiled or chosen now.

        `edit` may change each graph before it is instantiated.
        """
        self._parts: list[tuple[torch.cuda.CUDAGraph, Action | None]] = []
        # Memory that waits for the collector would be freed while a capture forbids it.
        gc.collect()
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph = _begin(pool)

            def end(action: Action | None) -> None:
                graph.capture_end()
                if edit is not None:
                    edit(graph)
                graph.instantiate()
                self._parts.append((graph, action))

            def cut(action: Action) -> None:
                nonlocal graph
                end(action)
                graph = _begin(pool)

            body(cut)
            end(None)
        torch.cuda.current_stream().wait_stream(stream)

    def replay(self) -> None:
        """Queue the work on the current stream and run the actions on the way."""
        for graph, action in self._parts:
            graph.replay()
            if action is not None:
                action()


def _begin(pool: _POOL_HANDLE | None) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    # NCCL's watchdog thread may query events meanwhile: only this thread is held to the rules.
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    return graph
