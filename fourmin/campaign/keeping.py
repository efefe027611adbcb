"""The room that the states of a campaign take, before it begins."""

from __future__ import annotations

from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.files import require_room, require_writable
from fourmin.estimate.models import FP32_BYTES, load_shape
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.optimizers import OPTIMIZERS


def state_bytes(configuration: Configuration) -> int:
    """Of one state: weights, the optimizer's tensors, running means and variances."""
    shape = load_shape(configuration.model)
    tensors = 1 + len(OPTIMIZERS[configuration.optimizer].tensors)
    return FP32_BYTES * (tensors * shape.elements + 2 * sum(shape.batch_norm_channels))


def kept_bytes(configuration: Configuration, runs: int) -> int:
    """At most, of all states of a campaign: one after each epoch."""
    return runs * configuration.max_epochs * state_bytes(configuration)


def describe_keeping(folder: Path, configuration: Configuration, runs: int) -> str:
    """For people, before the first run."""
    each, all_of_them = (
        f"{size / 1e6:,.1f} MB"
        for size in (state_bytes(configuration), kept_bytes(configuration, runs))
    )
    epochs = configuration.max_epochs
    return f"states: at most {runs} x {epochs} of {each} each, {all_of_them}, in {folder}"


def require_keeping(folder: Path, configuration: Configuration, runs: int, *, here: bool) -> None:
    """Raise FourminError where the states could not be kept in `folder`, which is looked at where
    it is `here`.
    """
    if not configuration.deterministic:
        raise FourminError(
            "--keep-states is for deterministic runs",
            "what another run has come to cannot be trained again",
            "--set deterministic=true, or without --keep-states",
        )
    if here:
        require_writable(folder, "folder of states")
        needed = kept_bytes(configuration, runs)
        require_room(folder, needed, "the states", "they have at most", "--keep-states")
