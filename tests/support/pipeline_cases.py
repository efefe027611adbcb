"""What the ranks of a pipeline's tests do."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fourmin.base.errors import FourminError
from fourmin.training.algorithms.pipeline import Pipeline
from fourmin.training.models import build_model
from fourmin.training.models.init import initialize
from fourmin.training.models.resnet import ResNet
from fourmin.training.precision import Precision

SIZE, BATCHES = 24, 2
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed.pipelining"])


def model_of(name: str) -> ResNet:
    model = build_model(name, num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    initialize(model, 5, "he", False)
    assert isinstance(model, ResNet)
    return model.to(memory_format=torch.channels_last).train()


def momentum_sgd(model: ResNet) -> torch.optim.SGD:
    """With its buffers there from the start, as those of runs are."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def batch(number: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    images = torch.randn(SIZE, 3, 16, 16, generator=generator)
    labels = torch.randint(10, (SIZE,), generator=generator)
    return images.to(memory_format=torch.channels_last), labels


def run(folder: Path, ranks: int, **case: Any) -> list[dict[str, Any]]:
    """What each rank found."""
    processes = [
        _CONTEXT.Process(target=_process, args=(folder, rank, ranks, case)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        if process.is_alive():
            process.kill()
    assert [process.exitcode for process in processes] == [0] * ranks
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


def _process(folder: Path, rank: int, ranks: int, case: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    torch.save(_train(rank, **case), folder / f"{rank}.pt")
    dist.destroy_process_group()


def _train(rank: int, model: str, micro_batches: int, precision: str) -> dict[str, Any]:
    """Some steps of SGD, and then the weights and momenta of all ranks."""
    net = model_of(model)
    images = torch.zeros(SIZE // micro_batches, 3, 16, 16)
    try:
        pipeline = Pipeline(net, images, micro_batches, Precision(precision, "cpu"), 0.1)
    except FourminError as error:
        return {"refused": error.what}
    optimizer = momentum_sgd(net)
    losses, gradients = [], []
    for number in range(BATCHES):
        optimizer.zero_grad()
        losses.append(float(pipeline.backward(*batch(number))))
        gradients.append({n: p.grad for n, p in net.named_parameters() if p.grad is not None})
        gradients[-1] = {name: gradient.clone() for name, gradient in gradients[-1].items()}
        optimizer.step()
    pipeline.share(optimizer)
    momenta = [optimizer.state[one]["momentum_buffer"] for one in net.parameters()]
    return {
        "losses": losses, "gradients": gradients, "state": net.state_dict(), "momenta": momenta,
        "bytes": pipeline.bytes,
    }  # fmt: skip
