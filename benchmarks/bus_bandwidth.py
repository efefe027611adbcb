"""`fourmin bench allreduce` against a plain loop: `python benchmarks/bus_bandwidth.py [--gpus N]`.

The loop is torch.distributed's all_reduce alone, with CUDA events around calls that follow each
other, and shares no code with the package. Both take turns, three times each, in processes of their
own; bus bandwidth is bytes / time * 2 (n - 1) / n, as nccl-tests define it. Prints the medians by
size and exits with 1 where `native` differs from the loop by more than 2% at 128 MiB or 1 GiB:
smaller ones take so few microseconds that how a loop launches them is seen.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

MIB = 1 << 20
SIZES = (2 * MIB, 16 * MIB, 128 * MIB, 1024 * MIB)
JUDGED, MARGIN = 128 * MIB, 0.02
TURNS, CALLS, BATCHES = 3, 20, 5


def loop(path: str) -> None:
    """Seconds of an all-reduce by bytes, of the slowest GPU: the median of batches of calls."""
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    seconds = {}
    for size in SIZES:
        data = torch.zeros(size // 4, device=device)
        times = []
        for _ in range(BATCHES + 1):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            dist.barrier(device_ids=[device.index])
            dist.all_reduce(data)
            start.record()
            for _ in range(CALLS):
                dist.all_reduce(data)
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop) / 1e3 / CALLS)
        slowest = torch.tensor(statistics.median(times[1:]), device=device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        seconds[size] = float(slowest)
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(seconds))
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=torch.cuda.device_count())
    gpus = parser.parse_args().gpus
    if gpus < 2:
        print("needs at least two GPUs", file=sys.stderr)
        return 2
    factor = 2 * (gpus - 1) / gpus
    found: dict[str, dict[int, list[float]]] = {"loop": {}, "fourmin": {}}
    for _ in range(TURNS):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "seconds.json"
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            command = [*launcher, f"--nproc-per-node={gpus}", __file__, "loop", str(path)]
            subprocess.run(command, check=True)
            for size, seconds in json.loads(path.read_text()).items():
                bandwidth = int(size) / seconds * factor
                found["loop"].setdefault(int(size), []).append(bandwidth)
        command = [sys.executable, "-m", "fourmin", "bench", "allreduce", "--device", "cuda"]
        command += ["--procs", str(gpus), "--format", "nccl-tests", "--factor", "8", "--json"]
        command += ["--seconds", "3"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        for row in json.loads(done.stdout)["rows"]:
            if row["algorithm"] == "native" and row["bytes"] in SIZES:
                found["fourmin"].setdefault(row["bytes"], []).append(row["bus_bandwidth"] * 1e9)
    missed = False
    for size in SIZES:
        medians = {name: statistics.median(values[size]) for name, values in found.items()}
        ratio = medians["fourmin"] / medians["loop"]
        missed |= size >= JUDGED and abs(ratio - 1) > MARGIN
        told = ", ".join(f"{name} {value / 1e9:.1f} GB/s" for name, value in medians.items())
        print(f"{size // MIB} MiB: {told}; {ratio:.3f}")
    return int(missed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["loop"]:
        loop(sys.argv[2])
    else:
        sys.exit(main())
