"""The counts of benchmarks/rounds.py against what the shipped classes call and send."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from benchmark_scripts import load_script

from fourmin.estimate.hybrid import bucket_sizes
from fourmin.recipe.allreduces import CANDIDATES
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.recipe.topology import Topology
from fourmin.training.comm import composed, native, rounds
from fourmin.training.comm.base import build_all_reduce


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("rounds")


class OnGpu(torch.Tensor):
    """A tensor without content that takes the path of those on a GPU."""

    is_cuda = True


CallsOf = Callable[[str, Configuration, Topology], tuple[Counter[str], int]]


@pytest.fixture
def calls_of(monkeypatch: pytest.MonkeyPatch) -> CallsOf:
    """What a rank calls in a step, by kind, and its bytes, of a torch.distributed that counts."""
    seen: Counter[str] = Counter()
    nbytes = [0]

    def counting(kind: str, given: int = 0) -> Callable[..., None]:
        def count(*arguments: Any, **_: Any) -> None:
            seen[kind] += 1
            nbytes[0] += arguments[given].nbytes

        return count

    def batch(operations: list[Any]) -> list[Any]:
        seen["rounds"] += 1
        nbytes[0] += sum(tensor.nbytes for way, tensor, _ in operations if way)
        return []

    fake = SimpleNamespace(
        get_backend=lambda: "gloo",
        new_group=lambda *_, **__: None,
        ProcessGroup=int,
        Work=int,
        isend=True,
        irecv=False,
        P2POp=lambda *operation: operation,
        batch_isend_irecv=batch,
        **{kind: counting(kind) for kind in ("reduce", "all_reduce", "broadcast")},
    )
    for module in (composed, native, rounds):
        monkeypatch.setattr(module, "dist", fake)
    monkeypatch.setattr(composed, "_scatter", counting("reduce_scatter", 1))
    monkeypatch.setattr(composed, "_gather", counting("all_gather"))

    def calls(name: str, config: Configuration, topology: Topology) -> tuple[Counter[str], int]:
        built = build_all_reduce(
            name,
            topology,
            hybrid_threshold=config.hybrid_threshold,
            hybrid_large=config.hybrid_large,
            timeout_seconds=1,
        )
        seen.clear()
        nbytes[0] = 0
        dtype = {"fp16": torch.float16, "fp32": torch.float32}[config.gradient_dtype]
        for size in bucket_sizes(config):
            tensor = torch.empty(size // dtype.itemsize, dtype=dtype, device="meta")
            built.all_reduce(tensor.as_subclass(OnGpu))
        return seen, nbytes[0]

    return calls


@pytest.mark.parametrize("name", [*CANDIDATES, "hybrid"])
@pytest.mark.parametrize(
    ("preset", "ranks", "node", "group"),
    [
        ("resnet50-64k", 2048, 8, 0),
        ("resnet50-64k", 16, 8, 0),
        ("alexnet-64k", 40, 8, 0),
        ("resnet50-256", 16, 8, 3),
        ("resnet50-256", 8, 8, 0),
    ],
)
def test_a_step_counts_as_the_shipped_classes_call(
    script: ModuleType,
    calls_of: CallsOf,
    name: str,
    preset: str,
    ranks: int,
    node: int,
    group: int,
) -> None:
    config = replace(load_preset(preset).resolved(8, keep_workers=True), group_size=group)
    seen, nbytes = calls_of(name, config, Topology.build(0, ranks, node, group))
    counted = script.counted(preset, ranks, "dgx-h100", group)
    told = counted["algorithms"][name]
    assert told["calls"] == seen.total()
    assert told["rounds"] == seen.pop("rounds", 0)
    assert told["collectives"] == seen
    # Messages are of whole elements, of which a part may have one more.
    assert told["bytes"] == pytest.approx(nbytes, rel=1e-3)
    assert counted["bucket_bytes"] == bucket_sizes(config)


@pytest.mark.parametrize("ranks", [16, 128, 2048])
@pytest.mark.parametrize(("dtype", "pieces"), [("fp16", [5, 5, 4, 1]), ("fp32", [7, 6, 6, 1])])
@pytest.mark.parametrize("name", ["hierarchical", "torus", "hybrid"])
@pytest.mark.parametrize("of_group", [0, 7])
def test_a_step_of_resnet50_64k_makes_few_calls_however_many_ranks(
    calls_of: CallsOf, name: str, dtype: str, pieces: list[int], ranks: int, of_group: int
) -> None:
    """Buckets of 19, 16, 13 and 0.5 MiB in FP16, a piece for each whole root of them in MiB."""
    config = replace(
        load_preset("resnet50-64k").resolved(8, keep_workers=False), gradient_dtype=dtype
    )
    seen, _ = calls_of(name, config, Topology.build(ranks - 8 + of_group, ranks, 8))
    folded = {"hierarchical": sum(pieces), "torus": 0, "hybrid": pieces[-1]}[name]
    shared = sum(pieces) - folded
    assert seen == Counter(
        reduce=folded,
        broadcast=folded,
        reduce_scatter=shared,
        all_gather=shared,
        all_reduce=shared + (folded if of_group == 0 else 0),
    )
    assert seen.total() <= 64


def test_what_the_library_does_is_told_apart(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["rounds.py", "--preset", "resnet50-64k", "--ranks", "16"]
    monkeypatch.setattr("sys.argv", [*command, "--json", "--system-profile", "p40-100gbe"])
    assert script.main() == 0
    found = json.loads(capsys.readouterr().out)["algorithms"]
    for name, each in found.items():
        assert set(each) == {"calls", "collectives", "rounds", "bytes", "library"}, name
    # NCCL of that day has rings only: 30 hops for 16 ranks, and 7 + 7 + 2 for torus and hierarchy.
    assert found["native"]["library"]["hops"] == 4 * 30
    assert found["torus"]["library"]["hops"] == found["hierarchical"]["library"]["hops"] == 15 * 16
    assert found["ring"]["library"] == {key: found["ring"][k] for key, k in
                                        (("hops", "rounds"), ("bytes", "bytes"))}  # fmt: skip
    monkeypatch.setattr("sys.argv", command)
    assert script.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:]] == list(found)


def test_ranks_that_fill_no_nodes_are_refused(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for ranks in ("0", "12"):
        monkeypatch.setattr("sys.argv", ["rounds.py", "--ranks", ranks])
        assert script.main() == 2
        assert "--ranks: a multiple of" in capsys.readouterr().err
