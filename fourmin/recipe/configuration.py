"""The whole configuration of a run: one frozen dataclass, to and from JSON, with its digest.

Whatever can change the outcome of a run is a field here, whoever set it (the preset, a
command-line option, `--set`), so that it reaches campaign.json, the event log and result.json.
Paths are not: where the data lies does not change the outcome, what it holds does, and that is
the manifest's digest.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from fourmin.base.canonical import canonical_bytes, sha256_hex
from fourmin.base.errors import FourminError, list_names
from fourmin.recipe.tuning import parse_entries

CHOICES: dict[str, tuple[str, ...]] = {
    "division": ("closed", "open"),
    "optimizer": ("lars", "sgd"),
    "learning_rate_decay": ("poly", "step", "constant"),
    "warmup_shape": ("linear", "quadratic"),
    "initialization": ("he", "truncated-normal"),
    "device": ("cpu", "cuda"),
    "precision": ("fp32", "fp16", "bf16"),
    "allreduce": (
        "native",
        "ring",
        "hierarchical",
        "hybrid",
        "halving-doubling",
        "torus",
        "tuned",
    ),
    "gradient_dtype": ("fp32", "fp16", "bf16"),
    "loader": ("dali", "torchvision"),
    "decoder": ("cpu", "mixed"),
    "augmentation": ("shift", "pad-crop", "random-resized-crop", "none"),
    "step": ("eager", "fast"),
}
"""The values that a field with named choices can take."""

AUTO = "auto"
"""What a preset writes for device, precision or decoder where the machine decides."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Everything that decides the outcome of a run. Epochs count from 1, steps from 0."""

    # What is measured.
    preset: str
    benchmark: str
    model: str
    division: str = "closed"

    # Workers and batch (images).
    nodes: int = 1
    procs_per_node: int
    global_batch_size: int
    gradient_accumulation_steps: int = 1

    # Optimizer and schedule. Learning rates are those of the global batch.
    optimizer: str
    base_learning_rate: float
    end_learning_rate: float = 1e-4
    learning_rate_decay: str = "poly"
    decay_poly_power: float = 2.0
    decay_epochs: float
    decay_milestones: tuple[float, ...] = ()
    decay_factor: float = 0.1
    warmup_epochs: float = 0.0
    warmup_start_learning_rate: float = 0.0
    warmup_shape: str = "linear"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float
    lars_eta: float = 0.001
    lars_epsilon: float = 0.0
    lars_clip: bool = False
    exclude_bias_and_bn: bool = True
    label_smoothing: float = 0.0
    max_epochs: int

    # Model.
    initialization: str = "he"
    zero_last_gamma: bool = False
    bn_momentum: float = 0.1
    bn_epsilon: float = 1e-5
    bn_span: int = 1

    # Device and precision. The loss scale applies to fp16 only.
    device: str = AUTO
    precision: str = AUTO
    loss_scale: float = 65536.0
    loss_scale_growth_interval: int = 2000

    # Gradient reduction (bytes; group_size 0: the workers of a node).
    allreduce: str = "native"
    group_size: int = 0
    fusion_threshold: int = 4 << 20
    gradient_dtype: str = "fp32"
    """What a bucket is sent as; gradients are kept in FP32 whatever it is."""
    hybrid_threshold: int = 1 << 20
    tuning: tuple[str, ...] = ()
    """The table of allreduce=tuned, "BYTES:ALGORITHM" each; see fourmin.recipe.tuning."""
    collective_timeout_seconds: float = 60.0

    # Input (pixels; mean and standard deviation on the 0 to 255 scale, for red, green, blue).
    loader: str = "dali"
    loader_threads: int = 1
    decoder: str = AUTO
    """Where images are decoded: on the CPU or, by DALI alone, with the GPU's help (mixed)."""
    decoded_cache: int = 0
    """Decoded images that a worker keeps in the host's memory, MiB at most; 0 keeps none."""
    image_size: int
    eval_resize: int
    augmentation: str = "random-resized-crop"
    pixel_mean: tuple[float, ...]
    pixel_std: tuple[float, ...]

    # Evaluation schedule and execution.
    eval_offset: int = 0
    checkpoints: bool = True
    """Whether a checkpoint is written beside training after each evaluation."""
    threads: int = 1
    step: str = "eager"
    max_steps: int | None = None

    @property
    def workers(self) -> int:
        """Number of worker processes over all nodes."""
        return self.nodes * self.procs_per_node

    @property
    def local_batch_size(self) -> int:
        """Images that one worker takes through one forward and backward pass."""
        return self.global_batch_size // (self.workers * self.gradient_accumulation_steps)

    def steps_per_epoch(self, train_samples: int) -> int:
        """Full global batches in one epoch; the last incomplete one is dropped."""
        return train_samples // self.global_batch_size

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in field order."""
        return {
            field.name: list(value) if isinstance(value, tuple) else value
            for field in dataclasses.fields(self)
            for value in [getattr(self, field.name)]
        }

    def resolved(self, gpus: int, *, keep_workers: bool, cpus: int | None = None) -> Configuration:
        """What this machine decides: device, precision, and workers a node unless kept.

        `gpus` and `cpus` are how many this process may use (cpus None: those of its affinity).
        The preset's number of workers is the most that are started. On one node each worker has
        a GPU of its own or, on the CPU, a core of its own, and there the number is lowered to one
        that shares the batch equally. A machine without GPUs does not decide for `device=cuda`,
        nor does this node for several.
        """
        workers = self.procs_per_node
        device = self.device
        if device == AUTO:
            device = "cuda" if gpus > 0 else "cpu"
        if self.nodes == 1 and not keep_workers:
            if device == "cpu":
                workers = self._workers_for(cpus or len(os.sched_getaffinity(0)))
            elif gpus > 0:
                workers = min(workers, gpus)
        precision = self.precision
        if precision == AUTO:
            precision = "fp16" if device == "cuda" else "bf16"
        decoder = self.decoder
        if decoder == AUTO:
            decoder = _usual_decoder(device, self.loader, cached=self.decoded_cache > 0)
        return dataclasses.replace(
            self,
            device=device,
            precision=precision,
            decoder=decoder,
            procs_per_node=workers,
        )

    def _workers_for(self, cpus: int) -> int:
        """The largest number of workers for `cpus` cores that shares the batch equally."""
        most = max(1, min(self.procs_per_node, cpus))
        images = self.global_batch_size // self.gradient_accumulation_steps
        return next((n for n in range(most, 0, -1) if images > 0 and images % n == 0), most)

    def digest(self) -> str:
        """Hex SHA-256 of the canonical JSON of every field."""
        return sha256_hex(canonical_bytes(self.to_json()))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Configuration:
        """The configuration that `to_json` wrote.

        Raises FourminError when a field is missing, unknown or of another type.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise FourminError(f"unknown configuration key {unknown[0]!r}")
        values = {name: _coerce(name, value) for name, value in data.items()}
        if values.get("device") in CHOICES["device"]:
            # Campaigns of before this field were registered with what was the only way then.
            values.setdefault("decoder", _usual_decoder(values["device"], values.get("loader", "")))
        try:
            return cls(**values)
        except TypeError as error:
            raise FourminError("incomplete configuration", str(error)) from None

    def with_overrides(self, changes: Mapping[str, Any]) -> Configuration:
        """A copy with some fields replaced; checks names and types, not the combination."""
        return dataclasses.replace(
            self, **{name: _coerce(name, value) for name, value in changes.items()}
        )

    def check(self) -> None:
        """Refuse what can never run, before anything is registered.

        Raises FourminError that names the field, the reason and the values that would do.
        """
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise FourminError(
                    f"{name}={value!r} is not known", next_step=f"known: {list_names(choices)}"
                )
        positive = (
            "nodes procs_per_node global_batch_size gradient_accumulation_steps decay_epochs "
            "max_epochs bn_span loss_scale loss_scale_growth_interval collective_timeout_seconds "
            "loader_threads image_size eval_resize threads bn_epsilon"
        )
        for name in positive.split():
            if not getattr(self, name) > 0:
                raise FourminError(f"{name} must be greater than 0, not {getattr(self, name)}")
        not_negative = (
            "base_learning_rate end_learning_rate weight_decay lars_eta lars_epsilon "
            "warmup_epochs warmup_start_learning_rate group_size fusion_threshold "
            "hybrid_threshold eval_offset momentum decoded_cache"
        )
        for name in not_negative.split():
            if not getattr(self, name) >= 0:
                raise FourminError(f"{name} must not be negative, but is {getattr(self, name)}")
        for name in ("momentum", "label_smoothing", "bn_momentum"):
            if not 0 <= getattr(self, name) <= 1:
                raise FourminError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        for name in ("pixel_mean", "pixel_std"):
            if len(getattr(self, name)) != 3:
                raise FourminError(f"{name} takes three numbers (red, green, blue)")
        if min(self.pixel_std) <= 0:
            raise FourminError("pixel_std must be greater than 0 for each channel")
        if self.step == "fast" and (self.device == "cpu" or self.precision == "fp32"):
            raise FourminError(
                "the fast step is for fp16 and bf16 on a GPU",
                f"this run is {self.precision} on {self.device}",
                "--set step=eager",
            )
        if self.device == "cpu" and self.precision == "fp16":
            raise FourminError(
                "fp16 needs a GPU",
                "the CPU has no fast half-precision arithmetic with loss scaling",
                "--precision bf16 or fp32",
            )
        if self.decoder == "mixed" and (self.device == "cpu" or self.loader != "dali"):
            raise FourminError(
                "decoder=mixed is DALI's on a GPU",
                f"this run uses the loader {self.loader} on {self.device}",
                "--set decoder=cpu",
            )
        if self.decoder == "mixed" and self.decoded_cache:
            raise FourminError(
                "decoded_cache needs decoder=cpu",
                "what the GPU decodes (mixed) stays there, and the cache is in the host's memory",
                "--set decoder=cpu, or --set decoded_cache=0",
            )
        if self.gradient_dtype == "fp16" and self.precision != "fp16":
            raise FourminError(
                "gradients sent in fp16 need loss scaling",
                f"precision={self.precision} has none, so that small ones would become zero",
                "--precision fp16, or --set gradient_dtype=bf16",
            )
        if self.max_steps is not None and self.max_steps < 1:
            raise FourminError("max_steps must be at least 1")
        self._check_batch()
        self._check_bn_span()
        self._check_groups()
        self._check_tuning()

    def _check_groups(self) -> None:
        size, node = self.group_size, self.procs_per_node
        if size <= node or (size <= self.workers and size % node == 0):
            return
        larger = f", or a multiple of {node} up to {self.workers}" if self.nodes > 1 else ""
        raise FourminError(
            f"group_size={size} does not fit {self.workers} workers, {node} on each node",
            "a group is a part of one node or a number of whole nodes",
            f"1 to {node}{larger}; 0 stands for the node",
        )

    def _check_tuning(self) -> None:
        if self.tuning:
            parse_entries(self.tuning)
        elif self.allreduce == "tuned":
            raise FourminError(
                "allreduce=tuned needs a table",
                "it takes the algorithm that a measurement found fastest for each size",
                "`fourmin bench allreduce --output FILE`, then --tuning FILE",
            )

    def _check_bn_span(self) -> None:
        if self.workers % self.bn_span == 0:
            return
        fits = [str(span) for span in range(1, self.workers + 1) if self.workers % span == 0]
        raise FourminError(
            f"bn_span={self.bn_span} does not fit {self.workers} workers",
            "every group of workers that shares batch statistics must have the same size",
            f"--set bn_span=N with N one of {', '.join(fits)}",
        )

    def _check_batch(self) -> None:
        parts = self.workers * self.gradient_accumulation_steps
        if self.global_batch_size % parts == 0:
            return
        fits = [
            workers
            for workers in range(1, self.global_batch_size + 1)
            if self.global_batch_size % (workers * self.gradient_accumulation_steps) == 0
        ]
        nearest = sorted(sorted(fits, key=lambda w: (abs(w - self.workers), w))[:6])
        lower = self.global_batch_size // parts * parts
        batches = " or ".join(str(batch) for batch in (lower, lower + parts) if batch > 0)
        accumulation = (
            f" in {self.gradient_accumulation_steps} accumulation steps"
            if self.gradient_accumulation_steps > 1
            else ""
        )
        raise FourminError(
            f"a global batch of {self.global_batch_size} images cannot be shared equally by "
            f"{self.workers} workers{accumulation}",
            "every worker takes the same number of images in each forward pass",
            (f"worker counts that fit: {', '.join(map(str, nearest))}; or " if nearest else "")
            + f"--set global_batch_size={batches}",
        )


FIELD_TYPES: dict[str, Any] = typing.get_type_hints(Configuration)
"""The declared type of each field, by name."""


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """The fields that `--set name=value` options name, with values of the fields' types.

    Raises FourminError for a missing '=', an unknown name, a repeated name or a value of
    another type.
    """
    changes: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        name = name.strip()
        if not separator:
            raise FourminError(
                f"--set {setting!r} has no value", next_step="write --set name=value"
            )
        if name in ("preset", "benchmark") or name not in FIELD_TYPES:
            raise _unknown_key(name)
        if name in changes:
            raise FourminError(f"--set {name} is given twice")
        changes[name] = _from_text(name, text.strip())
    return changes


def _unknown_key(name: str) -> FourminError:
    """The keys that `name` may have been meant for, nearest first; all of them where none is."""
    if name == "preset":
        return FourminError("unknown --set key 'preset'", next_step="choose it with --preset")
    keys = [known for known in FIELD_TYPES if known not in ("preset", "benchmark")]
    wanted = name.lower().replace("-", "_").strip("_")
    within = [key for key in keys if len(wanted) > 2 and (wanted in key or key in wanted)]
    near = dict.fromkeys([*get_close_matches(wanted, keys, 5), *within])
    return FourminError(
        f"unknown --set key {name!r}",
        f"near: {', '.join(near)}" if near else "",
        "`fourmin presets digits` shows every key" if near else f"known keys: {list_names(keys)}",
    )


def requested_changes(options: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The fields that a command's own options (None: not given) and its `--set` options change.

    Raises FourminError as `parse_settings` does, and for a field that is given both ways.
    """
    given = {name: value for name, value in options.items() if value is not None}
    changes = parse_settings(settings)
    twice = sorted(set(given) & set(changes))
    if twice:
        raise FourminError(f"{twice[0]} is given by an option and by --set: which one?")
    return given | changes


def _from_text(name: str, text: str) -> Any:
    declared = FIELD_TYPES[name]
    if declared is str:
        return text
    if typing.get_origin(declared) is tuple:
        text = text if text.startswith("[") else f"[{text}]"
    text = {"none": "null"}.get(text.lower(), text.lower())
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return _coerce(name, value)


def _usual_decoder(device: str, loader: str, *, cached: bool = False) -> str:
    """The GPU's where there is one, unless the pixels are to be kept in the host's memory."""
    return "mixed" if device == "cuda" and loader == "dali" and not cached else "cpu"


def _coerce(name: str, value: Any) -> Any:
    """`value` as the type of field `name`; JSON does not tell 16 from 16.0."""
    if name not in FIELD_TYPES:
        raise FourminError(
            f"unknown configuration key {name!r}", next_step=f"known: {list_names([*FIELD_TYPES])}"
        )
    declared = FIELD_TYPES[name]
    if isinstance(declared, types.UnionType):
        if value is None:
            return None
        declared = next(t for t in typing.get_args(declared) if t is not type(None))
    result: Any = _as_type(declared, value)
    if result is None:
        wanted = getattr(declared, "__name__", str(declared))
        raise FourminError(f"{name}={value!r} is not of type {wanted}")
    return result


def _as_type(declared: Any, value: Any) -> Any:
    """`value` as `declared`, or None where that would lose something."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if declared is float:
        return float(value) if number and math.isfinite(value) else None
    if declared is int:
        return int(value) if number and value == int(value) else None
    if declared is bool or declared is str:
        return value if isinstance(value, declared) else None
    if isinstance(value, (list, tuple)):
        items = [_as_type(typing.get_args(declared)[0], item) for item in value]
        return None if None in items else tuple(items)
    return None
