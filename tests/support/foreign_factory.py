"""Synthetic MLPerf logs and packages in every dialect, and DAWNBench entries."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fourmin.results.importers.tensors import TENSORS

Record = dict[str, Any]
STARTS_MS = {
    "v0.5": 1_541_600_000_000,
    "v0.6": 1_558_600_000_000,
    "v0.7": 1_592_000_000_000,
    "v1.0": 1_620_000_000_000,
    "v1.1": 1_634_000_000_000,
    "v2.0": 1_651_000_000_000,
    "v2.1": 1_664_000_000_000,
    "v3.0": 1_682_000_000_000,
    "v3.1": 1_696_000_000_000,
    "v4.0": 1_714_000_000_000,
}
"""A time within each round."""
LARS = {
    "lars_opt_base_learning_rate": 11.0,
    "lars_opt_end_learning_rate": 0.0001,
    "lars_opt_learning_rate_decay_poly_power": 2,
    "lars_opt_learning_rate_decay_steps": 37,
    "lars_epsilon": 0,
    "lars_opt_learning_rate_warmup_epochs": 2,
    "lars_opt_momentum": 0.9,
    "lars_opt_weight_decay": 5e-05,
}


def record(time_ms: float, key: str, value: Any = None, **metadata: Any) -> Record:
    """One record with its six fields."""
    event = "POINT_IN_TIME"
    if key.endswith("_start"):
        event = "INTERVAL_START"
    elif key.endswith("_stop"):
        event = "INTERVAL_END"
    return {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": event,
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 1, **metadata},
    }


def mlperf_records(
    of_round: str = "v4.0",
    run: int = 0,
    *,
    batch: int = 3200,
    epochs: int = 35,
    offset: int = 3,
    epoch_ms: int = 20_000,
    converges: bool = True,
    division: str = "closed",
    target: float = 0.759,
) -> list[Record]:
    """A log without a fault, of a run with an evaluation every 4 epochs, the last one passing."""
    now = STARTS_MS[of_round] + run * 3_600_000
    found: list[Record] = []

    def add(key: str, value: Any = None, after: int = 1, **metadata: Any) -> None:
        nonlocal now
        now += after
        found.append(record(now, key, value, **metadata))

    for key, value in (
        ("submission_benchmark", "resnet"),
        ("submission_org", "ACME"),
        ("submission_division", division),
        ("submission_status", "onprem"),
        ("submission_platform", "8xA1000"),
        ("cache_clear", True),
        ("init_start", None),
        ("seed", 1000 + run),
    ):
        add(key, value)
    if of_round in ("v1.0", "v1.1", "v2.0", "v2.1", "v3.0"):
        for tensor in sorted(TENSORS):
            add("weights_initialization", tensor=tensor)
    for key, value in (
        ("global_batch_size", batch),
        ("opt_name", "lars"),
        ("model_bn_span", 400),
        ("gradient_accumulation_steps", 1),
        *LARS.items(),
    ):
        add(key, value)
    add("init_stop", after=60_000)
    add("run_start")
    add("train_samples", 1_281_167)
    add("eval_samples", 50_000)
    add("block_start", first_epoch_num=1, epoch_count=offset)
    for epoch in range(1, epochs + 1):
        add("epoch_start", epoch_num=epoch)
        add("epoch_stop", after=epoch_ms + 7 * run, epoch_num=epoch)
        if epoch % 4 != offset % 4:
            continue
        add("block_stop", first_epoch_num=max(1, epoch - 3))
        add("eval_start", epoch_num=epoch)
        last = epoch + 4 > epochs
        value = target + 0.0005 if last and converges else target - (epochs - epoch + 1) * 0.01
        add("eval_accuracy", value + run * 1e-5, after=500 + run, epoch_num=epoch)
        add("eval_stop", epoch_num=epoch)
        if not last:
            add("block_start", first_epoch_num=epoch + 1, epoch_count=4)
    add("run_stop", status="success" if converges else "aborted")
    return found


def as_mllog(records: Sequence[Record]) -> str:
    """Today's dialect."""
    return "".join(f":::MLLOG {json.dumps(item)}\n" for item in records)


def as_mll(records: Sequence[Record]) -> str:
    """v0.6's dialect, in which sample counts had other names."""
    names = {"train_samples": "num_train_examples", "eval_samples": "num_eval_examples"}
    return "".join(
        f":::MLL {item['time_ms'] / 1000:.6f} {names.get(item['key'], item['key'])}: "
        f"{json.dumps({'value': item['value'], 'metadata': item['metadata']})}\n"
        for item in records
    )


def as_mlp(records: Sequence[Record]) -> str:
    """v0.5's dialect: fewer events, and the epochs in the values."""
    lines = []
    for item in records:
        key, value, epoch = item["key"], item["value"], item["metadata"].get("epoch_num")
        if key.startswith(("submission", "init", "block", "lars", "model", "grad", "weights")):
            continue
        if key == "eval_accuracy":
            value = {"epoch": epoch, "value": value}
        elif key == "run_stop":
            value = {"success": item["metadata"]["status"] == "success"}
        elif key == "epoch_start":
            key, value = "train_epoch", epoch
        elif key in ("epoch_stop", "eval_start", "eval_stop"):
            value = epoch
        key = {
            "cache_clear": "run_clear_caches",
            "global_batch_size": "input_batch_size",
            "seed": "run_set_random_seed",
            "train_samples": "preproc_num_train_examples",
            "eval_samples": "preproc_num_eval_examples",
        }.get(key, key)
        tail = "" if value is None else f": {json.dumps(value)}"
        lines.append(f":::MLPv0.5.0 resnet {item['time_ms'] / 1000:.9f} (train.py:1) {key}{tail}\n")
    return "".join(lines)


def text_of(of_round: str, records: Sequence[Record]) -> str:
    """A log in its round's dialect."""
    write: Callable[[Sequence[Record]], str] = {"v0.5": as_mlp, "v0.6": as_mll}.get(
        of_round, as_mllog
    )
    return write(records)


def system_json(**changes: Any) -> dict[str, Any]:
    """A system description of 2 nodes with 8 accelerators each."""
    return {
        "submitter": "ACME",
        "division": "closed",
        "status": "onprem",
        "system_name": "8xA1000",
        "number_of_nodes": "2",
        "accelerators_per_node": "8",
        "accelerator_model_name": "ACME A1000",
    } | changes


def make_package(
    root: Path,
    of_round: str = "v4.0",
    *,
    runs: int = 5,
    named: bool = True,
    edit: Callable[[int, list[Record]], Any] | None = None,
    text: Callable[[int, str], str] | None = None,
    **story: Any,
) -> Path:
    """A package of one result; its folder of logs. `edit` changes a run's records, `text` its file.

    With `named`, the package lies in a folder of the round's name.
    """
    package = (root / of_round if named else root) / "ACME"
    folder = package / "results" / "8xA1000" / "resnet"
    folder.mkdir(parents=True)
    (package / "systems").mkdir()
    (package / "systems" / "8xA1000.json").write_text(json.dumps(system_json()))
    target = 0.749 if of_round == "v0.5" else 0.759
    for run in range(runs):
        records = mlperf_records(of_round, run, **{"target": target, **story})
        if edit is not None:
            edit(run, records)
        content = text_of(of_round, records)
        if text is not None:
            content = text(run, content)
        (folder / f"result_{run}.txt").write_text(content)
    return folder


def make_entry(
    folder: Path, name: str = "acme_resnet50", table: str | None = None, **changes: Any
) -> Path:
    """A DAWNBench entry; the path of its JSON file."""
    folder.mkdir(parents=True, exist_ok=True)
    description = {
        "version": "v1.0",
        "author": "ACME",
        "framework": "none",
        "codeURL": "https://example.org",
        "model": "ResNet-50",
        "hardware": "8 * A1000",
        "timestamp": "2018-04-20",
    }
    rows = ["epoch\thours\ttop1Accuracy\ttop5Accuracy"]
    rows += [f"{i}\t{i * 0.1}\t{70 + i * 0.5}\t{90 + i * 0.5}" for i in range(1, 9)]
    file = folder / f"{name}.json"
    file.write_text(json.dumps(description | changes))
    (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n" if table is None else table)
    return file
