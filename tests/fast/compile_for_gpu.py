"""Compile every kernel of a training step for GPUs that are not here: `compile_for_gpu.py MODEL`.

The step runs on the CPU with launches that are noted and not made. Prints a line for each kernel
that a GPU's shared memory cannot hold, or that does not compile; Triton brings the assembler.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fourmin.training.fast import workspace
from fourmin.training.fast.alexnet import FusedAlexNet
from fourmin.training.fast.graphs import at_once
from fourmin.training.fast.kernels import batchnorm, folding, max_pooling, pointwise, stem
from fourmin.training.fast.plan import FusionPlan
from fourmin.training.fast.resnet import FusedResNet
from fourmin.training.models import build_model

SHARED = {80: 166912, 89: 101376, 90: 232448}
"""Bytes of shared memory that a program may have, by compute capability (CUDA's guide)."""
_TYPES = {
    torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int8: "*i8",
    torch.uint8: "*u8",
}  # fmt: skip
_OPTIONS = ("num_warps", "num_stages")


class Noted:
    """A kernel whose launches are kept in `seen`."""

    seen: ClassVar[dict[str, tuple[Any, ASTSource, dict[str, int]]]] = {}

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, _grid: object) -> Any:
        return self._launch

    def _launch(self, *given: Any, **named: Any) -> None:
        options = {name: named.pop(name) for name in _OPTIONS if name in named}
        names = self._kernel.arg_names
        values = dict(zip(names, given, strict=False)) | named
        signature, constants, attributes = {}, {}, {}
        for index, name in enumerate(names):
            value, parameter = values[name], self._kernel.params[index]
            if parameter.is_constexpr or (type(value) is int and value == 1):
                signature[name], constants[name] = "constexpr", value
                continue
            if isinstance(value, torch.Tensor):
                signature[name] = _TYPES[value.dtype]
            else:
                signature[name] = "fp32" if isinstance(value, float) else "i32"
            if isinstance(value, torch.Tensor) or (type(value) is int and value % 16 == 0):
                attributes[(index,)] = [["tt.divisibility", 16]]
        key = repr((self._kernel.__name__, signature, constants, sorted(attributes), options))
        source = ASTSource(self._kernel, signature, constants, attributes)
        self.seen.setdefault(key, (self._kernel, source, options))


class Forgotten:
    def weight(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        pass

    def written(self, *parameters: torch.Tensor) -> None:
        pass


def note_a_step(model_name: str, shared: int) -> None:
    workspace.shared_memory = lambda _device: shared
    workspace.multiprocessors = lambda _device: 8
    model = build_model(model_name, num_classes=1000, bn_momentum=0.1, bn_epsilon=1e-5)
    model = model.to(memory_format=torch.channels_last)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    halves = {p: p.detach().half() for p in model.parameters() if p.ndim > 1}
    kind, size = (FusedAlexNet, 227) if model_name == "alexnet" else (FusedResNet, 64)
    fused = kind(model, halves, FusionPlan(epilogue=False))
    images = torch.zeros(2, 3, size, size).to(memory_format=torch.channels_last)
    buffer = fused.stem.input_buffer(images)
    with torch.no_grad():
        fused.refresh()
        fused.stem.fill(buffer, images)
        fused.loss_and_gradients(
            buffer, torch.Tensor.sum, torch.ones(()), Forgotten(), at_once, accumulate=False
        )


def main(model_name: str) -> int:
    for module in (batchnorm, folding, max_pooling, pointwise, stem):
        for name, kernel in list(vars(module).items()):
            if isinstance(kernel, triton.JITFunction) and "return" in kernel.fn.__annotations__:
                setattr(module, name, Noted(kernel))
    wrong = 0
    for capability, shared in SHARED.items():
        Noted.seen.clear()
        note_a_step(model_name, shared)
        for key, (kernel, source, options) in Noted.seen.items():
            made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            taken = made.metadata.shared
            if taken > shared:
                wrong += 1
                print(f"sm_{capability}: {kernel.__name__} takes {taken} of {shared} bytes: {key}")
        print(f"sm_{capability}: {len(Noted.seen)} kernels compiled")
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1]), 1))
