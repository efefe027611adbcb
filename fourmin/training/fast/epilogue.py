"""Convolutions whose epilogue sums their output and its squares, through cuDNN's graph API.

Needs the package `nvidia-cudnn-frontend`; without it, and for shapes that cuDNN refuses, batch
statistics are taken in a pass of their own. So they are in deterministic runs: two such runs of one
seed differed in their first loss, also by plans without cuDNN's note that their order varies.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from torch import Tensor

_PLANS_TRIED = 4
_TIMED = 5


def available() -> bool:
    """Whether the package is installed; it is loaded at the first convolution only."""
    return find_spec("cudnn") is not None


class StatisticsConvolution:
    """One convolution shape: y = conv(x, w), and per channel sums of y and y * y.

    The fastest of the first plans that cuDNN proposes is kept; timing waits for the device.
    Raises RuntimeError when cuDNN has no plan.
    """

    _handles: ClassVar[dict[int, Any]] = {}

    def __init__(
        self, x: Tensor, weight: Tensor, y: Tensor, stride: list[int], padding: list[int]
    ) -> None:
        try:
            import cudnn
        except (ImportError, OSError) as error:  # OSError: cuDNN itself is not where it looks
            raise RuntimeError(f"nvidia-cudnn-frontend cannot be loaded: {error}") from error

        self._cudnn = cudnn
        device = x.device.index or 0
        if device not in self._handles:
            self._handles[device] = cudnn.create_handle()
        self._handle = self._handles[device]
        kind = {torch.float16: cudnn.data_type.HALF, torch.bfloat16: cudnn.data_type.BFLOAT16}
        graph = cudnn.pygraph(
            io_data_type=kind[x.dtype],
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=self._handle,
        )
        self._x, self._w = (
            graph.tensor(dim=list(t.shape), stride=_channels_last(t)) for t in (x, weight)
        )
        self._y = graph.conv_fprop(
            image=self._x, weight=self._w, padding=padding, stride=stride, dilation=[1, 1]
        )
        self._y.set_output(True).set_data_type(kind[x.dtype])
        self._sum, self._squares = graph.genstats(input=self._y)
        for tensor in (self._sum, self._squares):
            tensor.set_output(True).set_data_type(cudnn.data_type.FLOAT)
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            graph.check_support()
        except Exception as error:  # the frontend's errors have no common base of their own
            raise RuntimeError(f"cuDNN refuses this convolution: {error}") from error
        self._graph = graph
        sums = torch.zeros(2, y.shape[1], device=x.device)
        best: tuple[float, int] | None = None
        count = graph.get_execution_plan_count()
        for index in range(min(_PLANS_TRIED, count)):
            try:
                graph.build_plan_at_index(index)
                self._plan = index
                self._bytes = graph.get_workspace_size_plan_at_index(index)
                seconds = self._time(x, weight, y, sums)
            except Exception:  # a plan that cannot be built or run is no plan
                continue
            if best is None or seconds < best[0]:
                best = (seconds, index)
        if best is None:
            raise RuntimeError("cuDNN has no plan for this convolution with statistics")
        self._plan = best[1]
        self._bytes = graph.get_workspace_size_plan_at_index(self._plan)

    @property
    def scratch(self) -> int:
        """Bytes of device memory that a call needs beside its tensors."""
        return max(1, int(self._bytes))

    def __call__(
        self, x: Tensor, weight: Tensor, y: Tensor, sums: Tensor, scratch: Tensor | None = None
    ) -> None:
        """Fill y and sums[0:2, C], FP32, on the current stream; `scratch` is uint8."""
        if scratch is None:
            scratch = torch.empty(self.scratch, dtype=torch.uint8, device=x.device)
        stream = torch.cuda.current_stream(x.device).cuda_stream
        self._cudnn.set_stream(handle=self._handle, stream=stream)
        self._graph.execute_plan_at_index(
            {
                self._x: x.data_ptr(),
                self._w: weight.data_ptr(),
                self._y: y.data_ptr(),
                self._sum: sums[0].data_ptr(),
                self._squares: sums[1].data_ptr(),
            },
            scratch.data_ptr(),
            self._plan,
            self._handle,
        )

    def _time(self, x: Tensor, weight: Tensor, y: Tensor, sums: Tensor) -> float:
        self(x, weight, y, sums)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(_TIMED):
            self(x, weight, y, sums)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))


def _channels_last(tensor: Tensor) -> list[int]:
    _, channels, height, width = tensor.shape
    return [height * width * channels, 1, width * channels, channels]
