"""What all but training knows of an optimizer: one entry each, by name.

The update itself is the module of the same name in fourmin/training/optim/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fourmin.base.errors import FourminError
from fourmin.log import keys

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration

CLOSED, OPEN = "closed", "open"

DECAY_STEPS = "decay steps"
"""In `OptimizerEntry.logged`: what follows from the whole schedule, not from one field."""


def _nothing(config: Configuration) -> None:
    """Refuse nothing."""


@dataclass(frozen=True, kw_only=True)
class OptimizerEntry:
    divisions: tuple[str, ...]
    """Where it may be used."""
    fields: tuple[str, ...]
    """The fields of the configuration that its update reads."""
    tensors: tuple[str, ...]
    """Names of its state tensors: FP32, of each parameter's shape, 0 before the first step."""
    moved: int
    """Bytes of a parameter that its update reads and writes at least: weight, gradient and state
    once, and a second time those of which a norm must be known first."""
    counters: tuple[str, ...] = ()
    """Names of its counts: one FP32 number a parameter, kept in the host's memory."""
    logged: Mapping[str, str]
    """Its keys in the event log, each with the field whose value it has, or DECAY_STEPS."""
    fused: bool = False
    """Whether the fast step has an update for it."""
    refuse: Callable[[Configuration], None] = _nothing
    """Raises FourminError for values of `fields` that cannot be together."""

    def values(self, config: Configuration, decay_steps: int) -> dict[str, Any]:
        """Each key of `logged` with its value, as JSON has it."""
        found = config.to_json() | {DECAY_STEPS: decay_steps}
        return {key: found[source] for key, source in self.logged.items()}

    def check(self, config: Configuration) -> None:
        """Refuse what can never run. Raises FourminError."""
        name = config.optimizer
        if config.division not in self.divisions:
            raise FourminError(
                f"optimizer={name} is not for the {config.division} division",
                "no benchmark has limits for it there",
                f"--set division={self.divisions[0]}",
            )
        self.refuse(config)


def _no_nesterov(config: Configuration) -> None:
    if config.nesterov:
        raise FourminError(
            "LARS has no Nesterov form here",
            "MLPerf's reference points assume plain momentum",
            "--set nesterov=false, or --set optimizer=sgd",
        )


def _nesterov_with_momentum(config: Configuration) -> None:
    if config.nesterov and config.momentum == 0:
        raise FourminError(
            "Nesterov momentum needs a momentum greater than 0",
            next_step="--set momentum=0.9, or --set nesterov=false",
        )


_DECAY_FIELDS = ("base_learning_rate", "weight_decay", "exclude_bias_and_bn")
_ADAM_FIELDS = (*_DECAY_FIELDS, "adam_beta1", "adam_beta2", "adam_epsilon")
_ADAM_STATE = ("exp_avg", "exp_avg_sq")
_SCHEDULE_KEYS = {
    keys.OPT_LEARNING_RATE_DECAY_STEPS: DECAY_STEPS,
    keys.OPT_LEARNING_RATE_DECAY_BOUNDARY_EPOCHS: "decay_milestones",
    keys.OPT_LEARNING_RATE_WARMUP_EPOCHS: "warmup_epochs",
}
"""Those of the schedule that MLPerf has for any optimizer."""

OPTIMIZERS: dict[str, OptimizerEntry] = {
    "lars": OptimizerEntry(
        divisions=(CLOSED, OPEN),
        fields=(*_DECAY_FIELDS, "momentum", "nesterov", "lars_eta", "lars_epsilon", "lars_clip"),
        tensors=("momentum_buffer",),
        moved=28,
        logged={
            keys.LARS_OPT_BASE_LEARNING_RATE: "base_learning_rate",
            keys.LARS_OPT_END_LEARNING_RATE: "end_learning_rate",
            keys.LARS_OPT_LEARNING_RATE_DECAY_POLY_POWER: "decay_poly_power",
            keys.LARS_OPT_LEARNING_RATE_DECAY_STEPS: DECAY_STEPS,
            keys.LARS_EPSILON: "lars_epsilon",
            keys.LARS_OPT_LEARNING_RATE_WARMUP_EPOCHS: "warmup_epochs",
            keys.LARS_OPT_MOMENTUM: "momentum",
            keys.LARS_OPT_WEIGHT_DECAY: "weight_decay",
        },
        fused=True,
        refuse=_no_nesterov,
    ),
    "sgd": OptimizerEntry(
        divisions=(CLOSED, OPEN),
        fields=(*_DECAY_FIELDS, "momentum", "nesterov"),
        tensors=("momentum_buffer",),
        moved=20,
        logged={
            keys.SGD_OPT_BASE_LEARNING_RATE: "base_learning_rate",
            keys.SGD_OPT_END_LEARNING_RATE: "end_learning_rate",
            keys.SGD_OPT_LEARNING_RATE_DECAY_POLY_POWER: "decay_poly_power",
            keys.SGD_OPT_LEARNING_RATE_DECAY_STEPS: DECAY_STEPS,
            keys.OPT_LEARNING_RATE_DECAY_BOUNDARY_EPOCHS: "decay_milestones",
            keys.OPT_LEARNING_RATE_WARMUP_EPOCHS: "warmup_epochs",
            keys.SGD_OPT_MOMENTUM: "momentum",
            keys.SGD_OPT_WEIGHT_DECAY: "weight_decay",
        },
        fused=True,
        refuse=_nesterov_with_momentum,
    ),
    "lamb": OptimizerEntry(
        divisions=(OPEN,),
        fields=_ADAM_FIELDS,
        tensors=_ADAM_STATE,
        moved=40,
        counters=("step",),
        logged={
            keys.OPT_BASE_LEARNING_RATE: "base_learning_rate",
            keys.OPT_LAMB_LEARNING_RATE_MIN: "end_learning_rate",
            keys.OPT_LAMB_LEARNING_RATE_DECAY_POLY_POWER: "decay_poly_power",
            **_SCHEDULE_KEYS,
            keys.OPT_LAMB_BETA_1: "adam_beta1",
            keys.OPT_LAMB_BETA_2: "adam_beta2",
            keys.OPT_LAMB_EPSILON: "adam_epsilon",
            keys.OPT_LAMB_WEIGHT_DECAY_RATE: "weight_decay",
        },
    ),
    "adamw": OptimizerEntry(
        divisions=(OPEN,),
        fields=_ADAM_FIELDS,
        tensors=_ADAM_STATE,
        moved=28,
        counters=("step",),
        # MLPerf has no key for the power of AdamW's decay.
        logged={
            keys.OPT_BASE_LEARNING_RATE: "base_learning_rate",
            keys.OPT_END_LEARNING_RATE: "end_learning_rate",
            **_SCHEDULE_KEYS,
            keys.OPT_ADAMW_BETA_1: "adam_beta1",
            keys.OPT_ADAMW_BETA_2: "adam_beta2",
            keys.OPT_ADAMW_EPSILON: "adam_epsilon",
            keys.OPT_ADAMW_WEIGHT_DECAY: "weight_decay",
        },
    ),
    "adagrad": OptimizerEntry(
        divisions=(OPEN,),
        fields=_DECAY_FIELDS,
        tensors=("sum",),
        moved=20,
        counters=("step",),
        # MLPerf has no key of its own for it.
        logged={
            keys.OPT_BASE_LEARNING_RATE: "base_learning_rate",
            keys.OPT_END_LEARNING_RATE: "end_learning_rate",
            **_SCHEDULE_KEYS,
            keys.OPT_WEIGHT_DECAY: "weight_decay",
        },
    ),
}
"""Every optimizer by the name that the configuration and `opt_name` in the log have for it."""


def fields_not_read(name: str) -> set[str]:
    """Fields of the configuration that only other optimizers read."""
    every = {field for entry in OPTIMIZERS.values() for field in entry.fields}
    return every - set(OPTIMIZERS[name].fields)
