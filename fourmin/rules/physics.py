"""The least time that training and evaluation take on a machine, by limits that are published.

`rules/<version>/plausibility.json` holds the limits; docs/plausibility.md says where each is from.
None is taken from measured runs, and what a run did not capture is taken generously: a bound is
for what no machine can do, not for what is unusual.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fourmin.base.canonical import loads_strict
from fourmin.base.text import how_many
from fourmin.base.values import listed, mapping, number
from fourmin.recipe.configuration import Configuration
from fourmin.ruleset import load_ruleset


@cache
def limits_of(ruleset: str) -> Any:
    """plausibility.json: models' operations, and what bounds processors, GPUs and meters."""
    return loads_strict((load_ruleset(ruleset).folder / "plausibility.json").read_bytes())


@dataclass(frozen=True)
class Work:
    """What a model asks for, at least: operations (a multiply-add is two) to train on an image
    and to evaluate one, and the convolutions and linear layers of one pass.
    """

    training: float
    evaluation: float
    layers: int

    @classmethod
    def of(cls, ruleset: str, model: str, image_size: int) -> Work | None:
        """At this height and width (pixels); None for a model that the ruleset does not know.

        Of a k x k convolution a (4k / (k+3))²th is counted, as the fastest algorithm in use needs
        it: Winograd's F(4x4, k x k), on which no stride and no padding saves more. The last
        layer, whose size the classes decide, is left out. A backward pass computes the gradients
        of weights and of inputs, each as costly as the forward pass; only the first layer needs
        none of its inputs.
        """
        row = limits_of(ruleset)["models"].get(model)
        if row is None:
            return None
        area = (image_size / row["image_size"]) ** 2
        first = row["first"]["operations"] / _saving(row["first"]["kernel"]) * area
        convolutions = sum(
            operations / _saving(int(kernel)) for kernel, operations in row["convolutions"].items()
        )
        forward = convolutions * area + row["linear"]
        return cls(3 * forward - first, forward, row["layers"])


def _saving(kernel: int) -> float:
    return (4 * kernel / (kernel + 3)) ** 2


@dataclass(frozen=True)
class Machine:
    """What all workers of a run can do together, at most: operations a second, and the time that
    one layer of one pass takes however small it is. `text` says what they are.
    """

    operations: float
    layer_seconds: float
    overlaps: bool
    """Whether layers are called while others compute, as they are for a GPU."""
    text: str

    @classmethod
    def of(cls, ruleset: str, config: Configuration, system: Mapping[str, Any]) -> Machine | str:
        """That of a captured system; where it gives no bound, the reason."""
        limits = limits_of(ruleset)
        captured = mapping(system.get("limits"))
        hardware = mapping(system.get("hardware"))
        if config.device == "cuda":
            worker = _fastest_gpu(ruleset, gpus(system), captured)
            what = how_many(config.workers, "GPU")
        else:
            cpus = number(mapping(hardware.get("processor")).get("cpus"))
            threads = min(config.threads, int(cpus)) if cpus else 0
            core = _core(limits["processor"], mapping(captured.get("processor")))
            worker = threads * core or "no processor was captured"
            what = how_many(config.workers * threads, "CPU core")
        if isinstance(worker, str):
            return worker
        per_layer = limits["seconds_per_layer"]
        return cls(
            operations=config.workers * worker,
            # A step that is not told may have been the quickest.
            layer_seconds=per_layer.get(config.step, min(per_layer.values())),
            overlaps=config.device == "cuda",
            text=what,
        )

    def seconds(self, operations: float, layers: float) -> float:
        """The least time for so many operations, over so many layers in turn."""
        parts = operations / self.operations, layers * self.layer_seconds
        return max(parts) if self.overlaps else sum(parts)


def gpus(system: Mapping[str, Any]) -> dict[str, int]:
    """The captured GPUs of a node by model, and how many there are of each."""
    found: dict[str, int] = {}
    for kind in map(mapping, listed(mapping(system.get("hardware")).get("accelerators"))):
        count = number(kind.get("count"))
        model = str(kind.get("model"))
        found[model] = found.get(model, 0) + (0 if count is None else int(count))
    return found


def peak_of(ruleset: str, model: str) -> float | None:
    """The highest published peak (operations/s) of a chip, at the clock that it can rise to; None
    where it is not known.

    Of several names that occur in `model` the longest is meant: `L40S` is no `L40`.
    """
    limits = limits_of(ruleset)
    words = f" {' '.join(re.split(r'[^A-Za-z0-9]+', model))} ".lower()
    found = [chip for chip in limits["chips"] if f" {chip['match'].lower()} " in words]
    if not found:
        return None
    peak = max(found, key=lambda chip: len(chip["match"]))["peak"]
    return float(peak * limits["accelerator"]["boost"])


def captured_limits(captured: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """What was captured of one model of GPU; empty where nothing was."""
    kinds = map(mapping, listed(captured.get("accelerators")))
    return next((kind for kind in kinds if kind.get("model") == model), {})


def _fastest_gpu(
    ruleset: str, models: Mapping[str, int], captured: Mapping[str, Any]
) -> float | str:
    """Operations/s of the fastest of the GPUs, or why there is no bound."""
    if not models:
        return "no GPU was captured"
    found = []
    for model in models:
        peak = peak_of(ruleset, model) or _by_cores(ruleset, captured_limits(captured, model))
        if peak is None:
            return f"no peak is known for {model[:100]}, and its cores and clock were not captured"
        found.append(peak)
    return max(found)


def _by_cores(ruleset: str, captured: Mapping[str, Any]) -> float | None:
    """Operations/s of a GPU that nobody has listed, by its cores, clock and capability."""
    limits = limits_of(ruleset)["accelerator"]
    cores, megahertz = number(captured.get("cores")), number(captured.get("max_mhz"))
    if not cores or not megahertz:
        return None
    each = limits["operations_per_core_and_cycle"].get(
        str(captured.get("capability")), limits["most_operations_per_core_and_cycle"]
    )
    return float(cores * megahertz * 1e6 * each * limits["boost"])


def _core(limits: Mapping[str, Any], captured: Mapping[str, Any]) -> float:
    """Operations/s of one processor core, by its clock and instruction sets."""
    megahertz = number(captured.get("max_mhz"))
    hertz = min(
        limits["hertz"], megahertz * 1e6 * limits["boost"] if megahertz else limits["hertz"]
    )
    known = limits["operations_per_cycle"]
    each = [known[flag] for flag in listed(captured.get("flags")) if flag in known]
    return float(hertz * max(each, default=limits["most_operations_per_cycle"]))
