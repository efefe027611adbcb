"""One rank of the batch normalization tests: arguments RANK WORLD SPAN DIRECTORY DEVICE.

Reads inputs.pt, writes rank-<r>.pt there.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from fourmin.training.models.batchnorm import apply_bn_span, average_bn_statistics


def main() -> None:
    rank, world, span = map(int, sys.argv[1:4])
    directory = Path(sys.argv[4])
    timeout = timedelta(seconds=60)
    device = torch.device(sys.argv[5])
    if device.type == "cuda":
        torch.cuda.set_device(rank)
        torch.backends.cudnn.allow_tf32 = False
    dist.init_process_group(
        "gloo" if device.type == "cpu" else "nccl",
        init_method=f"file://{directory}/rendezvous",
        rank=rank,
        world_size=world,
        timeout=timeout,
    )
    inputs = torch.load(directory / "inputs.pt", weights_only=True)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.BatchNorm2d(4, 1e-5, 0.2)))
    model.load_state_dict(inputs["state"])
    model.to(device)
    before = [id(p) for p in model.parameters()]
    apply_bn_span(model, span, world, timeout=timeout)
    x = inputs["x"][rank].to(device).requires_grad_()
    weights = inputs["weights"][rank].to(device)
    result = {
        "same_parameters": before == [id(p) for p in model.parameters()],
        "keys": list(model.state_dict()),
    }
    for _ in range(2):
        model.zero_grad()
        x.grad = None
        y = model(x)
        (y * weights).sum().backward()
    result |= {"y": y.detach(), "dx": x.grad.clone()}
    result["grads"] = [p.grad.clone() for p in model.parameters()]
    result["state"] = {key: value.clone() for key, value in model.state_dict().items()}
    model.eval()
    result["y_eval"] = model(x).detach()
    model.train()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        low = model(x)
        (low.float() * weights).sum().backward()
    result["y_bf16"] = low.detach()
    model.load_state_dict(result["state"])
    average_bn_statistics(model)
    result["averaged"] = {key: value.clone() for key, value in model.state_dict().items()}
    torch.save(result, directory / f"rank-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
