"""What no machine can do is found, and what any honest machine did or could do is not."""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from campaign_factory import SYSTEM, make_campaign
from hypothesis import given
from hypothesis import strategies as st
from tamper import read_ledger, read_records, reseal, write_records
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fourmin.base.canonical import canonical_bytes
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.rules.engine import check_campaign
from fourmin.rules.physics import Machine, Work, limits_of, peak_of
from fourmin.training.models import MODEL_NAMES, build_model

LIMITS = limits_of("1.0")
ROOT = Path(__file__).resolve().parents[2]
SUBMITTED = sorted(path.parent for path in (ROOT / "submissions").glob("*/*/*/*/campaign.json"))


def torch_counts(name: str, size: int, classes: int = 10) -> dict[str, Any]:
    """Operations by PyTorch's own counter: by module in the forward pass, and of all passes."""
    with torch.device("meta"):
        model = build_model(name, num_classes=classes, bn_momentum=0.1, bn_epsilon=1e-5)
        images = torch.empty(2, 3, size, size)
    with FlopCounterMode(display=False) as forward:
        out = model(images)
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    counted = forward.get_flop_counts()
    modules = {
        path.partition(".")[2]: (module, sum(counted[path].values()) // 2)
        for path in counted
        for module in [dict(model.named_modules()).get(path.partition(".")[2])]
        if isinstance(module, (nn.Conv2d, nn.Linear))
    }
    return {
        "modules": modules,
        "forward": forward.get_total_flops() // 2,
        "backward": backward.get_total_flops() // 2,
    }


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_the_operations_are_those_that_torch_counts(name: str) -> None:
    row = LIMITS["models"][name]
    counted = torch_counts(name, row["image_size"])
    convolutions: dict[str, int] = {}
    linear = []
    for module, operations in counted["modules"].values():
        if isinstance(module, nn.Conv2d):
            kernel = str(module.kernel_size[0])
            convolutions[kernel] = convolutions.get(kernel, 0) + operations
        else:
            linear.append(operations)
    last = linear.pop()
    assert row["convolutions"] == convolutions
    assert row["linear"] == sum(linear)
    assert row["layers"] == len(counted["modules"])
    first, operations = next(iter(counted["modules"].values()))
    assert row["first"] == {"kernel": first.kernel_size[0], "operations": operations}
    if name != "alexnet":  # torch miscounts weight gradients of convolutions in groups
        # The gradients of weights and inputs, but not of the images.
        assert counted["backward"] == 2 * counted["forward"] - operations
    assert sum(convolutions.values()) + row["linear"] + last == counted["forward"]


def test_every_model_is_known() -> None:
    assert set(LIMITS["models"]) == set(MODEL_NAMES)
    assert Work.of("1.0", "vgg16", 224) is None


def winograd(outputs: int, kernel: int) -> float:
    """Multiplications of F(m x m, k x k) for each that the plain algorithm makes."""
    return (outputs + kernel - 1) ** 2 / (outputs * kernel) ** 2


@pytest.mark.parametrize(
    ("name", "size"), [("resnet8", 28), ("resnet20", 9), ("resnet50", 97), ("resnet50-tiny", 33)]
)
def test_no_algorithm_in_use_needs_fewer_operations(name: str, size: int) -> None:
    work = Work.of("1.0", name, size)
    assert work is not None
    counted = torch_counts(name, size)
    least = sum(
        operations * (winograd(4, m.kernel_size[0]) if isinstance(m, nn.Conv2d) else 1)
        for m, operations in counted["modules"].values()
    )
    assert 0 < work.evaluation <= least
    assert work.evaluation <= counted["forward"]
    assert 2 * work.evaluation < work.training < 3 * work.evaluation


# Ceilings.


@pytest.mark.parametrize(
    ("chip", "capability", "cores", "megahertz"),
    [  # cores and boost clocks as NVIDIA's data sheets give them beside the peak
        ("P100", "6.0", 3584, 1480),
        ("P40", "6.1", 3840, 1531),
        ("V100", "7.0", 5120, 1597),
        ("T4", "7.5", 2560, 1590),
        ("A100", "8.0", 6912, 1410),
        ("A40", "8.6", 10752, 1740),
        ("L40S", "8.9", 18176, 2520),
        ("RTX 4090", "8.9", 16384, 2520),
        ("H100", "9.0", 16896, 1830),
        ("H200", "9.0", 16896, 1830),
        ("RTX 5090", "12.0", 21760, 2407),
    ],
)
def test_peaks_by_name_and_by_cores_agree(
    chip: str, capability: str, cores: int, megahertz: int
) -> None:
    captured = {"cores": cores, "capability": capability, "max_mhz": megahertz}
    by_cores = machine(gpu_system(1, "ACME X1", **captured), gpu_run(1))
    named = peak_of("1.0", f"NVIDIA {chip}")
    assert isinstance(by_cores, Machine)
    assert named is not None
    assert by_cores.operations == pytest.approx(named, rel=0.03)


def gpu_system(count: int, model: str, **captured: Any) -> dict[str, Any]:
    """A node with `count` GPUs of one model, of which `captured` is known."""
    hardware = SYSTEM["hardware"] | {
        "accelerators": [{"model": model, "memory_gib": 16, "count": count}] if count else []
    }
    limits = {"processor": {"max_mhz": None, "flags": []}, "accelerators": []}
    if captured:
        limits["accelerators"] = [{"model": model, "power_watts": None, **captured}]  # type: ignore[assignment]
    return SYSTEM | {"hardware": hardware, "limits": limits}


def gpu_run(gpus: int, **changes: Any) -> Configuration:
    """ResNet-50 on one node's GPUs."""
    fields = {"device": "cuda", "precision": "fp16", "decoder": "cpu", "procs_per_node": gpus}
    fields["step"] = "eager"
    model = {"model": "resnet50", "image_size": 224}
    return dataclasses.replace(load_preset("digits"), **(fields | model | changes))


def cpu_run(**changes: Any) -> Configuration:
    fields = {"device": "cpu", "precision": "bf16", "decoder": "cpu", "procs_per_node": 2}
    fields["step"] = "eager"
    return dataclasses.replace(load_preset("digits"), **(fields | changes))


def machine(system: Mapping[str, Any], config: Configuration) -> Machine | str:
    return Machine.of("1.0", config, system)


def cores_of(processor: Mapping[str, Any], cpus: int = 2, **changes: Any) -> float:
    hardware = {"processor": {"architecture": "x86_64", "cpus": cpus}}
    found = machine({"hardware": hardware, "limits": {"processor": processor}}, cpu_run(**changes))
    assert isinstance(found, Machine)
    return found.operations


def test_processors_by_cores_clock_and_instruction_sets() -> None:
    generous = 2 * 6e9 * 2048
    assert cores_of({}) == cores_of({"flags": [], "max_mhz": None}) == generous
    assert cores_of({"flags": ["avx", "avx2", "avx512f"]}) == 2 * 6e9 * 128
    assert cores_of({"flags": ["avx2", "amx_tile"]}) == 2 * 6e9 * 1024
    assert cores_of({"flags": ["avx2"], "max_mhz": 2000}) == 2 * 4e9 * 64  # it may rise twofold
    assert cores_of({"flags": ["avx2"], "max_mhz": 5700}) == 2 * 6e9 * 64
    assert cores_of({}, cpus=64) == generous  # two workers of one thread
    assert cores_of({}, cpus=64, threads=16) == 16 * generous
    assert cores_of({}, cpus=4, threads=16, procs_per_node=8) == 16 * generous  # bound to 4 each
    assert cores_of({}, nodes=3) == 3 * generous
    assert cores_of({"flags": "avx2", "max_mhz": "fast"}) == generous  # a stranger's file


def test_without_hardware_there_is_no_bound() -> None:
    assert machine({}, cpu_run()) == "no processor was captured"
    assert machine({}, gpu_run(1)) == "no GPU was captured"
    assert "no peak is known for ACME X1" in str(machine(gpu_system(2, "ACME X1"), gpu_run(2)))
    assert "no peak" in str(machine(gpu_system(2, "X", cores=None, max_mhz=1000), gpu_run(2)))


def test_of_several_models_the_fastest_counts_and_none_may_be_unknown() -> None:
    system = gpu_system(1, "NVIDIA T4")
    kinds = system["hardware"]["accelerators"]
    kinds.append({"model": "NVIDIA H200", "memory_gib": 141, "count": 1})
    mixed = machine(system, gpu_run(2))
    assert isinstance(mixed, Machine)
    assert mixed.operations == 2 * 989.5e12 * 1.25
    kinds.append({"model": "ACME X1", "memory_gib": 141, "count": 1})
    assert isinstance(machine(system, gpu_run(2)), str)


def unchecked(folder: Path) -> set[str]:
    return {finding.code for finding in check_campaign(folder, "") if finding.unchecked}


def test_what_cannot_be_checked_is_no_pass(tmp_path: Path) -> None:
    story: dict[str, Any] = {"configuration": {"device": "cuda", "precision": "fp16"}}
    nothing = make_campaign(tmp_path / "none", **story)  # NVML saw no GPU
    assert unchecked(nothing) == {"PHY001", "PHY003"}
    unknown = make_campaign(tmp_path / "unknown", **story, system=gpu_system(2, "ACME X1"))
    assert unchecked(unknown) == {"PHY001"}
    captured = gpu_system(2, "ACME X1", cores=1000, capability="99.0", max_mhz=1000)
    assert unchecked(make_campaign(tmp_path / "captured", **story, system=captured)) == set()


# Honest machines pass.

PUBLISHED = [
    # The fastest of each chip in MLPerf Training v0.7 to v4.0, images/s of ResNet-50 a chip, from
    # the event logs that MLCommons published.
    ("NVIDIA H200-SXM5-141GB", 7767.6, 8),
    ("NVIDIA H100-SXM5-80GB", 7335.3, 4),
    ("NVIDIA H100-PCIe-80GB", 4667.9, 4),
    ("NVIDIA A100-SXM-80GB CTS", 3445.2, 4),
    ("NVIDIA A100-PCIE-80GB", 3115.8, 4),
    ("NVIDIA L40S", 2173.5, 4),
    ("NVIDIA A30", 1586.2, 2),
    ("NVIDIA V100-SXM3-32GB (450W)", 1552.1, 16),
    ("NVIDIA A40", 1263.7, 24),
    ("NVIDIA GeForce RTX 4090", 1021.1, 6),
    # Jia et al. 2018: 218 images/s a chip, 1,024 chips in 8.7 minutes; Goyal et al. 2017: 256
    # P100 in an hour, 90 epochs.
    ("Tesla P40", 218.0, 1024),
    ("Tesla P100-SXM2-16GB", 90 * 1_281_167 / 3600 / 256, 256),
]


@pytest.mark.parametrize(("chip", "rate", "chips"), PUBLISHED)
def test_published_throughputs_are_possible(chip: str, rate: float, chips: int) -> None:
    work, peak = Work.of("1.0", "resnet50", 224), peak_of("1.0", chip)
    assert work is not None
    assert peak is not None
    assert rate * work.training < peak / 2
    batch = chips * 208  # images a step, as most of them took
    found = machine(
        gpu_system(8, chip), gpu_run(1, nodes=chips, step="fast", global_batch_size=batch)
    )
    assert isinstance(found, Machine)
    steps = 1000
    seconds = steps * batch / (rate * chips)
    assert found.seconds(steps * batch * work.training, 2 * steps * work.layers) < seconds


ENGINES = {
    "cpu": [{"flags": ["avx2"], "max_mhz": 4000}, {"flags": ["amx_tile"], "max_mhz": None}],
    "cuda": [chip["match"] for chip in LIMITS["chips"]],
}


@given(data=st.data())
def test_honest_times_pass_and_a_thousandth_does_not(data: st.DataObject) -> None:
    """Times as training takes them: a share of the peak, without Winograd, and some 20 µs a layer
    (22 were measured for an H200's CUDA graphs, 130 and more for PyTorch's step).
    """
    name = data.draw(st.sampled_from(MODEL_NAMES), "model")
    device = data.draw(st.sampled_from(["cpu", "cuda"]), "device")
    workers = data.draw(st.integers(1, 8), "workers")
    local = data.draw(st.integers(1, 512), "images of a worker")
    share = data.draw(st.floats(0.05, 0.7), "share of the peak")
    layer = data.draw(st.floats(20e-6, 1e-3), "seconds of a layer")
    size = LIMITS["models"][name]["image_size"]
    fields = {
        "model": name, "image_size": size, "procs_per_node": workers,
        "global_batch_size": workers * local,
    }  # fmt: skip
    engine = data.draw(st.sampled_from(ENGINES[device]), "engine")
    if device == "cpu":
        config = cpu_run(**fields)
        system: dict[str, Any] = {"hardware": {"processor": {"cpus": 8}}}
        system["limits"] = {"processor": engine}
        clock = 4e9 if engine["max_mhz"] else 3.5e9
        peak = clock * {"avx2": 32, "amx_tile": 1024}[engine["flags"][0]]
    else:
        config = gpu_run(**{"gpus": workers, **fields})
        system = gpu_system(8, f"NVIDIA {engine}")
        peak = next(chip["peak"] for chip in LIMITS["chips"] if chip["match"] == engine)
    work, found = Work.of("1.0", name, size), machine(system, config)
    assert work is not None
    assert isinstance(found, Machine)
    row = LIMITS["models"][name]
    direct = 3 * local * (sum(row["convolutions"].values()) + row["linear"])
    honest = direct / (peak * share) + 2 * work.layers * layer
    least = found.seconds(workers * local * work.training, 2 * work.layers)
    assert least < honest
    assert least > honest / 1000


@pytest.mark.parametrize("faster", [1, 3, 10])
def test_a_machine_several_times_faster_passes(faster: int, tmp_path: Path) -> None:
    """Of this project: 12 ms a step on two cores, digits; 24,600 images/s on an H200."""
    folder = make_campaign(tmp_path / "digits", epoch_ms=270 / faster)
    assert not [f for f in check_campaign(folder, "") if f.code == "PHY001"]
    work = Work.of("1.0", "resnet50-tiny", 64)
    found = machine(
        gpu_system(1, "NVIDIA GB200"),
        gpu_run(1, model="resnet50-tiny", image_size=64, step="fast", global_batch_size=512),
    )
    assert work is not None
    assert isinstance(found, Machine)
    images = 100_000
    assert found.seconds(images * work.training, 0) < images / (24_600 * faster)


# Forged times do not.


def scale(folder: Path, factor: float) -> None:
    """Every time in log and ledger, so many times as long, and everything made again."""
    ledger = read_ledger(folder / "ledger.jsonl")
    zero = ledger[0]["time_ms"]
    for line in ledger:
        line["time_ms"] = zero + round((line["time_ms"] - zero) * factor)
    lines = b"".join(canonical_bytes(line) + b"\n" for line in ledger)
    (folder / "ledger.jsonl").write_bytes(lines)
    for path in folder.glob("run-*/events.log"):
        records = read_records(path)
        booted = records[0]["metadata"]["monotonic_ms"]
        for record in records:
            told = record["metadata"]
            record["time_ms"] = zero + round((record["time_ms"] - zero) * factor)
            told["monotonic_ms"] = booted + round((told["monotonic_ms"] - booted) * factor)
            if record["key"] == "tracked_stats":
                record["value"]["throughput"] /= factor
        write_records(path, records)
    reseal(folder)


def impossible(folder: Path) -> set[str]:
    return {f.path for f in check_campaign(folder, "") if f.code == "PHY001" and f.fails}


def test_the_whole_run_in_a_thousandth_is_found_by_its_events_alone(tmp_path: Path) -> None:
    """A resolution of milliseconds hides nothing where the run is longer than some of them."""
    folder = make_campaign(tmp_path, benchmark="resnet50", epochs=36)
    scale(folder, 0.001)
    for path in folder.glob("run-*/events.log"):
        records = [r for r in read_records(path) if r["key"] != "tracked_stats"]
        write_records(path, records)
    reseal(folder)
    assert len(impossible(folder)) == 5


def test_evaluations_are_bounded_too(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, benchmark="resnet50", epochs=36)
    path = folder / "run-2" / "events.log"
    records = read_records(path)
    for at, record in enumerate(records):
        if record["key"] == "eval_start":
            for clock in (record, record["metadata"]):
                name = "time_ms" if clock is record else "monotonic_ms"
                after = records[at + 1]
                clock[name] = (after if clock is record else after["metadata"])[name]
    write_records(path, records)
    reseal(folder)
    (found,) = [f for f in check_campaign(folder, "") if f.code == "PHY001"]
    assert found.path == "run-2/events.log"
    assert "the evaluation took 0.001 s" in found.message


@pytest.mark.parametrize("source", SUBMITTED, ids=lambda path: path.parent.parent.name)
def test_submissions_pass_and_in_a_thousandth_of_the_time_do_not(
    source: Path, tmp_path: Path
) -> None:
    assert not impossible(source)
    folder = tmp_path / "copy"
    shutil.copytree(source, folder)
    scale(folder, 0.001)
    assert impossible(folder)


# Energy.


def energy_errors(folder: Path) -> set[str]:
    codes = {"PHY004", "PHY005"}
    return {f.code for f in check_campaign(folder, "") if f.code in codes and f.fails}


@pytest.mark.parametrize(
    ("watts", "expected"),
    [(0.2, {"PHY005"}), (8, set()), (300, set()), (900, {"PHY005"}), (1e9, {"PHY005"})],
)
def test_gpus_take_no_less_than_idle_and_no_more_than_their_limit(
    watts: float, expected: set[str], tmp_path: Path
) -> None:
    captured = {"cores": 1000, "capability": "9.0", "max_mhz": 1000, "power_watts": 300}
    folder = make_campaign(
        tmp_path, system=gpu_system(2, "ACME X1", **captured), epoch_ms=3000,
        configuration={"device": "cuda", "precision": "fp16"}, joules=[2 * watts * 36] * 5,
    )  # fmt: skip
    assert energy_errors(folder) == expected


@pytest.mark.parametrize("seconds", [0.4, 4.0, 40.0])
@pytest.mark.parametrize("watts", [3.0, 15.0, 600.0])
def test_processors_from_a_laptop_to_a_server_may_have_their_energy(
    watts: float, seconds: float, tmp_path: Path
) -> None:
    folder = make_campaign(tmp_path, epoch_ms=seconds / 12 * 1000, joules=[watts * seconds] * 5)
    assert energy_errors(folder) == set()


def test_energy_that_is_no_energy_is_an_error_and_no_exception(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, joules=[30.0] * 5)
    for run, value in enumerate(("much", {"method": "rapl"}, [], {"method": []}), start=1):
        path = folder / f"run-{run}" / "events.log"
        records = copy.deepcopy(read_records(path))
        for record in records:
            if record["key"] == "energy":
                record["value"] = value
        write_records(path, records)
    reseal(folder)
    findings = check_campaign(folder, "")
    assert not [f for f in findings if "could not be applied" in f.message]
    paths = {f.path for f in findings if f.code == "PHY004"}
    assert paths == {"run-2/events.log", "run-4/events.log"}
