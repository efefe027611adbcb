"""What all but training knows of an algorithm: who computes gradients on which weights, and what
becomes of them. One entry each, by name; the work itself is in fourmin/training/algorithms/.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fourmin.base.errors import FourminError
from fourmin.recipe.fields import AUTO, later

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration

SYNCHRONOUS, PIPELINE, SANDBLASTER = "synchronous", "pipeline", "sandblaster"
NEVER_REPLAYED = "cannot be replayed"
"""What is said of a run whose workers do not wait for each other."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmEntry:
    asynchronous: bool = True
    """Whether workers do not wait for each other."""
    fields: tuple[str, ...] = ()
    """The fields of the configuration that not every algorithm reads, and this one does."""
    plain_sgd: bool = False
    """Whether it is for SGD without momentum alone."""
    optimizers: tuple[str, ...] = ()
    """The optimizers that it is for; (): all."""
    one_host: bool = False
    """Whether its workers must share memory."""


ALGORITHMS: dict[str, AlgorithmEntry] = {
    # All workers take a part of each batch, and all make the same update.
    SYNCHRONOUS: AlgorithmEntry(asynchronous=False),
    # Huang et al. 2019, arXiv 1811.06965: each worker has some of the layers.
    PIPELINE: AlgorithmEntry(asynchronous=False),
    # Dean et al. 2012, "Large Scale Distributed Deep Networks".
    "downpour": AlgorithmEntry(fields=("servers", "n_fetch", "n_push", "warm_start_epochs")),
    # The same, section 4.2.
    SANDBLASTER: AlgorithmEntry(
        fields=("servers", "lbfgs_pairs"), optimizers=("sgd",), plain_sgd=True
    ),
    # Niu et al. 2011, arXiv 1106.5730.
    "hogwild": AlgorithmEntry(optimizers=("sgd",), plain_sgd=True, one_host=True),
    # Zhang, Choromanska and LeCun 2015, arXiv 1412.6651.
    "easgd": AlgorithmEntry(
        fields=("servers", "elastic_period", "elastic_rate"), optimizers=("sgd",)
    ),
}
"""Every algorithm by the name that the configuration has for it."""

WAITING = [name for name, entry in ALGORITHMS.items() if not entry.asynchronous]
"""Those whose workers wait for each other. A list: others' configurations may hold anything."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmFields:
    """Who waits for whom: a part of the configuration."""

    algorithm: Annotated[
        str, later("Who computes gradients on which weights.", choices=tuple(ALGORITHMS))
    ] = SYNCHRONOUS
    servers: Annotated[
        int, later("Downpour, Sandblaster, EASGD: parts of the weights.", minimum=1)
    ] = 1
    n_fetch: Annotated[
        int, later("Downpour: how many from fetch to fetch.", unit="steps", minimum=1)
    ] = 1
    n_push: Annotated[
        int, later("Downpour: of how many gradients are pushed.", unit="steps", minimum=1)
    ] = 1
    warm_start_epochs: Annotated[
        int, later("Downpour: in which one worker trains alone.", unit="epochs", minimum=0)
    ] = 0
    lbfgs_pairs: Annotated[
        int, later("Sandblaster: steps that are remembered, with their gradients.", minimum=1)
    ] = 20
    elastic_period: Annotated[
        int, later("EASGD: tau, how many between exchanges.", unit="steps", minimum=1)
    ] = 4
    elastic_rate: Annotated[
        float, later("EASGD: beta, workers times the share that both move.", above=0, below=1)
    ] = 0.9


_FIELDS = {field for entry in ALGORITHMS.values() for field in entry.fields}
_OF_CALLS = (
    ("device", ("cpu", "auto"), "weights go through the host's memory"),
    ("step", ("eager", "auto"), "each worker changes its weights by itself"),
    ("gradient_density", (1.0,), "gradients are pushed whole"),
    ("gradient_dtype", ("fp32",), "weights and gradients are sent as they are kept"),
    ("bn_span", (1,), "workers do not wait for each other's statistics"),
)
"""Values that other fields must have where workers call hosts, and why."""
_OF_ASYNCHRONOUS = (
    ("deterministic", (False,), "who comes first decides, and no replay comes to the same bits"),
    *_OF_CALLS,
)
_OF_PIPELINE = (
    ("deterministic", (False,), "a replay is of workers that have all layers"),
    ("device", ("cpu", "auto"), "what is sent between layers goes through gloo"),
    ("precision", ("bf16", "fp32", AUTO), "FP16's loss scale would have to be sent too"),
    ("step", ("eager", "auto"), "the fast step knows no layers of others"),
    ("gradient_density", (1.0,), "no gradients are sent but those of activations"),
    ("gradient_dtype", ("fp32",), "no gradients are sent but those of activations"),
    ("bn_span", (1,), "statistics are those of a micro-batch"),
    ("phases", ((),), "a micro-batch has one size"),
)
_OF_SANDBLASTER = (
    *_OF_CALLS,
    ("deterministic", (False,), "a replay is of steps, and it makes none"),
    ("precision", ("fp32",), "a line search needs the loss as it is"),
    ("learning_rate_decay", ("constant",), "how far a step goes is found by a line search"),
    ("warmup_epochs", (0.0,), "how far a step goes is found by a line search"),
    ("phases", ((),), "the loss must stay the same function"),
)
_OTHERS = {PIPELINE: _OF_PIPELINE, SANDBLASTER: _OF_SANDBLASTER}
"""The same by algorithm, where they are other ones."""


def is_asynchronous(config: Configuration) -> bool:
    """Whether workers do not wait for each other: such a run cannot be replayed."""
    return config.algorithm not in WAITING


def update_name(config: Configuration) -> str:
    """What updates the weights, as `opt_name` in the log has it."""
    return "lbfgs" if config.algorithm == SANDBLASTER else config.optimizer


def repeats_order(config: Configuration) -> bool:
    """Whether each epoch has the batches of the first one."""
    return config.algorithm == SANDBLASTER


def as_synchronous(config: Configuration) -> Configuration:
    """What one worker would do that has nobody to wait for."""
    usual: dict[str, Any] = {
        field.name: field.default for field in dataclasses.fields(AlgorithmFields)
    }
    return dataclasses.replace(config, nodes=1, procs_per_node=1, **usual)


def check_algorithm(config: Configuration) -> None:
    """Refuse what can never run. Raises FourminError."""
    name, entry = config.algorithm, ALGORITHMS[config.algorithm]
    for field in dataclasses.fields(config):
        read = field.name not in _FIELDS or field.name in entry.fields
        if not read and getattr(config, field.name) != field.default:
            raise FourminError(
                f"algorithm={name} does not read {field.name}",
                next_step=f"--set {field.name}={field.default}, or another algorithm",
            )
    if name == SYNCHRONOUS:
        return
    for other, wanted, why in _OTHERS.get(name, _OF_ASYNCHRONOUS):
        if getattr(config, other) not in wanted:
            usual = str(wanted[0]).lower()
            raise _not_for(name, f"{other}={getattr(config, other)}", why, f"{other}={usual}")
    if name == PIPELINE and config.model == "alexnet":
        raise _not_for(name, "AlexNet", "it has no stages to share out", "model=resnet50")
    if entry.optimizers and config.optimizer not in entry.optimizers:
        why = f"its update is that of {entry.optimizers[0]}"
        better = f"optimizer={entry.optimizers[0]}"
        raise _not_for(name, f"optimizer={config.optimizer}", why, better)
    if entry.plain_sgd and config.momentum:
        why = "a momentum would be each worker's own"
        raise _not_for(name, f"momentum={config.momentum}", why, "momentum=0")
    if entry.one_host and config.nodes > 1:
        raise _not_for(name, f"{config.nodes} nodes", "its workers share memory", "nodes=1")
    if config.servers > config.workers:
        why = "each server is beside a worker"
        better = f"servers={config.workers}"
        raise _not_for(name, f"{config.servers} servers of {config.workers} workers", why, better)


def _not_for(name: str, what: str, why: str, better: str) -> FourminError:
    return FourminError(
        f"algorithm={name} is not for {what}",
        why,
        f"--set {better}, or --set algorithm={SYNCHRONOUS}",
    )
