"""What the processes of a LocalWorld run: each function takes rank, world size and arguments."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fourmin.base.errors import FourminError
from fourmin.log import keys
from fourmin.log.writer import SilentLog
from fourmin.recipe.presets import load_preset
from fourmin.recipe.topology import Topology
from fourmin.training.comm import composed
from fourmin.training.comm.agreement import (
    assert_known_sum,
    assert_same_on_all_ranks,
    tensor_digest,
)
from fourmin.training.comm.base import AllReduce, build_all_reduce
from fourmin.training.comm.build import build_reducer
from fourmin.training.comm.compression import gathered, scatter
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.measure import MeasurePlan, measure
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.energy import RunEnergy
from fourmin.training.optim import sgd
from fourmin.training.optim.sgd import SentSGD

TUNING = (
    "0:native", "9:torus", "3000:halving-doubling", "20000:ring", "100000:hierarchical",
)  # fmt: skip

KEPT = 4
_built: dict[tuple[Any, ...], tuple[AllReduce, list[dist.ProcessGroup]]] = {}


class IdentityAllReduce:
    """A broken algorithm: leaves every rank its own values."""

    name = "identity"

    def all_reduce(self, tensor: Tensor) -> None:
        pass


class TimesWorldAllReduce:
    """A broken algorithm: the mean comes out as a sum."""

    name = "times-world"

    def all_reduce(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor)
        tensor.mul_(dist.get_world_size())


class OneRankOffAllReduce:
    """A broken algorithm: rank 1 ends with other bits in one element."""

    name = "one-rank-off"

    def all_reduce(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor)
        if dist.get_rank() == 1 and tensor.numel():
            tensor[-1] *= 1 + torch.finfo(tensor.dtype).eps


BROKEN = {each.name: each for each in (IdentityAllReduce, TimesWorldAllReduce, OneRankOffAllReduce)}


def algorithm(
    name: str,
    rank: int,
    size: int,
    group_size: int = 0,
    hybrid_threshold: int = 4096,
    pipeline_bytes: int = 1 << 22,
    timeout_seconds: float = 60.0,
    tuning: tuple[str, ...] = TUNING,
) -> AllReduce:
    """The algorithm; the last few are kept, since making process groups takes time.

    Groups that are no longer needed go: each of gloo's has a thread that wakes up two hundred times
    a second, and some hundreds of them keep two cores busy.
    """
    key = (name, group_size, hybrid_threshold, pipeline_bytes, tuning)
    if key not in _built:
        before = set(_groups())
        made = (
            BROKEN[name]()
            if name in BROKEN
            else build_all_reduce(
                name,
                Topology.build(rank, size, ranks_per_node=size, group_size=group_size),
                hybrid_threshold=hybrid_threshold,
                timeout_seconds=timeout_seconds,
                pipeline_bytes=pipeline_bytes,
                tuning=tuning,
            )
        )
        _built[key] = made, [group for group in _groups() if group not in before]
        if len(_built) > KEPT:
            for group in _built.pop(next(iter(_built)))[1]:
                dist.destroy_process_group(group)
    return _built[key][0]


def _groups() -> list[dist.ProcessGroup]:
    return list(dist.distributed_c10d._world.pg_map)


def device_of(rank: int) -> torch.device:
    """Where this rank's tensors live."""
    return torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")


def ready(rank: int, size: int) -> int:
    dist.barrier()
    return rank


def values_of(rank: int, numel: int, dtype: torch.dtype, seed: int) -> Tensor:
    """The addends of a rank, of mixed signs and sizes; any rank can make those of another."""
    generator = torch.Generator().manual_seed(1_000_003 * seed + rank)
    plain = torch.randn(numel, generator=generator, dtype=torch.float64)
    return (plain * (1 + torch.arange(numel) % 7)).to(dtype)


def sums(
    rank: int, size: int, name: str, numels: list[int], dtypes: list[str], **options: Any
) -> list[dict[str, Any]]:
    """All-reduce of each size and type, compared with the sum in float64."""
    chosen = algorithm(name, rank, size, **options)
    rows = []
    for dtype_name in dtypes:
        dtype = getattr(torch, dtype_name)
        for numel in numels:
            tensor = values_of(rank, numel, dtype, seed=numel).to(device_of(rank))
            chosen.all_reduce(tensor)
            tensor = tensor.cpu()
            addends = [values_of(r, numel, dtype, seed=numel).double() for r in range(size)]
            exact = sum(addends, torch.zeros(numel, dtype=torch.float64))
            magnitude = sum((a.abs() for a in addends), torch.zeros(numel, dtype=torch.float64))
            # size - 1 additions, each wrong by at most half a unit in the last place.
            bound = (size - 1) * torch.finfo(dtype).eps / 2 * magnitude * 1.01
            excess = (tensor.double() - exact).abs() - bound
            rows.append(
                {
                    "dtype": dtype_name,
                    "numel": numel,
                    "excess": float(excess.max()) if numel else 0.0,
                    "digest": tensor_digest([tensor]),
                }
            )
    return rows


COLLECTIVES = ("reduce", "broadcast", "all_reduce")
SHARED_OUT = {"reduce_scatter": "_scatter", "all_gather": "_gather"}


def counted(
    rank: int, size: int, name: str, numel: int, group_size: int, pipeline_bytes: int
) -> dict[str, int]:
    """How often one all-reduce calls each collective of torch."""
    chosen = algorithm(name, rank, size, group_size, pipeline_bytes=pipeline_bytes)
    counts: Counter[str] = Counter()

    def counting(kind: str, call: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            counts[kind] += 1
            return call(*arguments, **options)

        return counted

    with ExitStack() as stack:
        places = [(dist, kind, kind) for kind in COLLECTIVES]
        places += [(composed, attribute, kind) for kind, attribute in SHARED_OUT.items()]
        for module, attribute, kind in places:
            wrapped = counting(kind, getattr(module, attribute))
            stack.enter_context(patch.object(module, attribute, wrapped))
        chosen.all_reduce(torch.ones(numel, device=device_of(rank)))
    return dict(counts)


def delayed_steps(
    rank: int, size: int, name: str, steps: int, group_size: int, seed: int = 0
) -> str:
    """All-reduces, each rank late by its own random times; "" if all are right."""
    chosen = algorithm(name, rank, size, group_size, pipeline_bytes=1 << 12)
    alike, own = random.Random(seed), random.Random(1000 * seed + rank)
    for step in range(steps):
        numel = alike.choice([1, 7, 63, 1000, 4097, 20_000])
        if own.random() < 0.3:
            time.sleep(own.expovariate(2000.0))
        tensor = torch.full((numel,), float(rank + 1), device=device_of(rank))
        chosen.all_reduce(tensor)
        if not bool((tensor == size * (size + 1) // 2).all()):
            return f"step {step}: {numel} elements are wrong"
    return ""


def measured(rank: int, size: int, names: list[str], sizes: list[int]) -> Any:
    """What ``measure`` gives for algorithms by name, or the message of its error."""
    place = WorkerPlace(rank, size, rank, size, device_of(rank))
    plan = MeasurePlan(sizes=tuple(sizes), device=place.device.type, iterations=3, seconds=1.0)
    try:
        rows = measure({name: algorithm(name, rank, size) for name in names}, plan, place)
    except FourminError as error:
        return str(error)
    return [dataclasses.asdict(row) for row in rows]


def make_model() -> nn.Module:
    """A small network without batch normalization, one weight of it channels_last."""
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3, stride=2, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 3 * 3, 10),
    )
    return model.to(memory_format=torch.channels_last)


def batch(samples: slice) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(9)
    images = torch.randn(12, 3, 8, 8, generator=generator)
    labels = torch.randint(0, 10, (12,), generator=generator)
    return images[samples].contiguous(memory_format=torch.channels_last), labels[samples]


def backward(model: nn.Module, samples: slice, divide_by: int = 1) -> None:
    device = next(model.parameters()).device
    images, labels = (part.to(device) for part in batch(samples))
    (nn.functional.cross_entropy(model(images), labels) / divide_by).backward()


def layout_digest(reducer: GradientReducer) -> str:
    """SHA-256 of what the buckets hold and how; it must be the same on all ranks."""
    text = repr(
        [
            (number, bucket.sent.dtype, slot.name, slot.offset, slot.view.shape, slot.view.stride())
            for number, bucket in enumerate(reducer.buckets)
            for slot in bucket.slots
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def gradients(model: nn.Module) -> dict[str, list[float]]:
    return {
        name: p.grad.contiguous().reshape(-1).tolist()  # type: ignore[union-attr]
        for name, p in model.named_parameters()
    }


def mean_gradient(
    rank: int,
    size: int,
    name: str,
    threshold_bytes: int,
    overlap: bool = True,
    bucket_dtype: str | None = None,
    micro_batches: int = 1,
    steps: int = 2,
    **options: Any,
) -> dict[str, Any]:
    """Gradients of this rank's shard of the batch, averaged; those of the last step."""
    model = make_model().to(device_of(rank))
    reducer = GradientReducer(
        model.named_parameters(),
        algorithm(name, rank, size, **options),
        size,
        threshold_bytes,
        overlap=overlap,
        bucket_dtype=None if bucket_dtype is None else getattr(torch, bucket_dtype),
    )
    share = 12 // size // micro_batches
    digests = []
    for _ in range(steps):
        reducer.clear()
        for i in range(micro_batches):
            start = (rank * micro_batches + i) * share
            with reducer.accumulating(i + 1 < micro_batches):
                backward(model, slice(start, start + share), divide_by=micro_batches)
        exposed = reducer.finish().seconds()
        digests.append(tensor_digest(reducer.flat_buffers))
    reducer.close()
    return {
        "gradients": gradients(model),
        "digests": digests,
        "exposed": exposed,
        "layout": layout_digest(reducer),
        "buckets": len(reducer.buckets),
        "collectives": reducer.counters.collectives,
        "bytes": reducer.counters.bytes,
        "algorithms": list(reducer.counters.bucket_algorithms),
    }


SHAPES = {"conv": (6, 4, 3, 3), "linear": (30, 40), "bias": (30,), "large": (40, 900)}
"""Of the parameters of `compressed_steps`."""


def gradient_of(name: str, rank: int, step: int) -> Tensor:
    """What a rank's loss gives in a step, heavy-tailed; any rank can make that of another."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)) * 10_007 + 97 * step + rank)
    return torch.randn(SHAPES[name], generator=generator) ** 3


def compressed_steps(
    rank: int, size: int, steps: int, threshold_bytes: int, names: list[str], **changes: Any
) -> dict[str, Any]:
    """Weights after so many steps of what a configuration with these changes builds; in the middle
    it goes on as after a restart, with another reducer and optimizer. One epoch is five steps.
    """
    config = dataclasses.replace(load_preset("digits"), optimizer="sgd", division="open", **changes)
    place = WorkerPlace(rank, size, rank, size, device_of(rank))
    torch.manual_seed(3)
    weights = {name: nn.Parameter(torch.randn(SHAPES[name])) for name in names}
    settings = dataclasses.replace(config, fusion_threshold=threshold_bytes)

    def made() -> tuple[GradientReducer, SentSGD]:
        reducer = build_reducer(settings, weights.items(), place)
        groups = [
            {"params": [w for w in weights.values() if (w.dim() > 1) == wide],
             "weight_decay": config.weight_decay if wide else 0.0}
            for wide in (True, False)
        ]  # fmt: skip
        optimizer = sgd.build([group for group in groups if group["params"]], config)
        assert isinstance(optimizer, SentSGD)
        return reducer, optimizer

    reducer, optimizer = made()
    assert reducer.compression is not None
    for step in range(steps):
        if step == steps // 2:
            sent = reducer.compression.bytes
            saved, momenta = gathered(reducer.compression, place), optimizer.state_dict()
            reducer.close()
            reducer, optimizer = made()
            assert reducer.compression is not None
            scatter(reducer.compression, saved, place)
            reducer.compression.bytes = sent
            optimizer.load_state_dict(momenta)
        reducer.compression.begin(config, step // 5 + 1)
        reducer.clear()
        parts = [(w * gradient_of(name, rank, step)).sum() for name, w in weights.items()]
        torch.stack(parts).sum().backward()
        reducer.finish()
        optimizer.step()
    sent = reducer.counters.bytes
    reducer.close()
    return {
        "weights": {name: w.tolist() for name, w in weights.items()},
        "digest": tensor_digest(list(weights.values())),
        "bytes": sent,
        "saved": None if saved is None else list(saved.shape),
    }


def compare_digest(rank: int, size: int, odd_ranks: list[int]) -> str:
    """The message of assert_same_on_all_ranks if ``odd_ranks`` hold something else."""
    weights = torch.ones(3) + (rank in odd_ranks)
    try:
        assert_same_on_all_ranks("weights", tensor_digest([weights]))
    except FourminError as error:
        return f"{error}\nexit {error.exit_code}"
    return ""


def known_sum(rank: int, size: int, spoiled_by: int | None) -> str:
    """The message of assert_known_sum if a rank's memory changes one number on the way."""
    honest = dist.all_reduce

    def faulty(tensor: Tensor) -> None:
        tensor[7] += rank == spoiled_by
        honest(tensor)

    dist.all_reduce = faulty
    try:
        assert_known_sum()
    except FourminError as error:
        return str(error)
    finally:
        dist.all_reduce = honest
    return ""


class CountingMeter:
    """A meter that says what it is told."""

    method, scope = "rapl", "package-0"

    def __init__(self, joules: float | None) -> None:
        self._joules = joules

    def start(self) -> None:
        pass

    def stop(self) -> float | None:
        return self._joules


class KeepingLog:
    """Keeps the values of what is logged."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def point(self, key: str, value: Any, **_: Any) -> None:
        assert key == keys.ENERGY
        self.values.append(value)


def run_energy(
    rank: int, size: int, by_node: list[float | None], started: bool
) -> list[Any] | None:
    """The energy of a run whose nodes count these joules; None as if there were no meter."""
    ranks_per_node = size // len(by_node)
    node, local_rank = divmod(rank, ranks_per_node)
    place = WorkerPlace(rank, size, local_rank, ranks_per_node, torch.device("cpu"))
    meter = CountingMeter(by_node[node]) if local_rank == 0 else None
    energy = RunEnergy(place, meter)
    if started:
        energy.start()
    log: Any = KeepingLog() if rank == 0 else SilentLog()
    energy.log(log, energy.stop())
    return log.values if rank == 0 else None


def step_without_peer(
    rank: int, size: int, name: str, absent: int, absent_seconds: float, **options: Any
) -> dict[str, Any]:
    """One step in which rank ``absent`` does not take part, seen from the others."""
    chosen = algorithm(name, rank, size, **options)
    warm_up = torch.ones(8)
    chosen.all_reduce(warm_up)
    if rank == absent:
        time.sleep(absent_seconds)
        return {}
    model = make_model()
    reducer = GradientReducer(model.named_parameters(), chosen, size, threshold_bytes=0)
    backward(model, slice(0, 4))
    start = time.monotonic()
    try:
        reducer.finish()
        message, kind = "", ""
    except FourminError as error:
        message, kind = str(error), type(error).__name__
    waited = time.monotonic() - start
    reducer.close()
    alive = [t.name for t in threading.enumerate() if t.name == "fourmin-comm"]
    return {"message": message, "kind": kind, "seconds": waited, "threads": alive}
