"""One rank that trains with both steps: arguments RANK WORLD FOLDER DEVICE PRECISION SPAN.

Writes rank-<r>.pt with losses and weights of each step, and how many buckets were reduced.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
from fast_cases import Learnable, make

STEPS, BATCH, SIZE, MICRO_BATCHES = 2, 4, 12, 2


def main() -> None:
    rank, world = map(int, sys.argv[1:3])
    folder, precision, span = Path(sys.argv[3]), sys.argv[5], int(sys.argv[6])
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    device = torch.device(sys.argv[4], rank) if sys.argv[4] == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=60),
    )
    result = {}
    for kind in ("eager", "fast"):
        options = {"use_graphs": device.type == "cuda"} if kind == "fast" else {}
        trained = make(kind, "resnet8", device, precision, world_size=world, span=span, **options)
        data = Learnable(device, SIZE, seed=rank)
        losses = [
            trained.step([data.batch(BATCH) for _ in range(MICRO_BATCHES)]) for _ in range(STEPS)
        ]
        result[kind] = {
            "losses": [loss.item() for loss, _ in losses],
            "exposed": [exposed.seconds() for _, exposed in losses],
            "performed": trained.step.performed,
            "weights": [p.detach().cpu() for p in trained.model.parameters()],
            "statistics": [b.detach().cpu() for b in trained.model.buffers()],
            "steps": trained.reducer.counters.steps,
            "buckets": len(trained.reducer.buckets),
        }
        trained.reducer.close()
    torch.save(result, folder / f"rank-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
