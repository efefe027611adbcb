"""The gradient reducer that a configuration asks for."""

from __future__ import annotations

from collections.abc import Iterable

from torch.nn import Parameter

from fourmin.recipe.configuration import Configuration
from fourmin.recipe.topology import Topology
from fourmin.training.comm.base import build_all_reduce
from fourmin.training.comm.compression import Settings
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.precision import DTYPES


def build_reducer(
    config: Configuration,
    parameters: Iterable[tuple[str, Parameter]],
    place: WorkerPlace,
    *,
    overlap: bool = True,
) -> GradientReducer:
    """Buckets, their type and their all-reduce as `config` says, for the worker at `place`.

    `parameters` is `model.named_parameters()`. All ranks must call this at the same point: some
    algorithms make process groups. Raises FourminError for groups that do not fit the workers,
    and what `GradientReducer` raises.
    """
    return GradientReducer(
        parameters,
        build_all_reduce(
            config.allreduce,
            Topology.build(place.rank, place.world_size, place.ranks_per_node, config.group_size),
            hybrid_threshold=config.hybrid_threshold,
            hybrid_large=config.hybrid_large,
            timeout_seconds=config.collective_timeout_seconds,
            tuning=config.tuning,
        ),
        place.world_size,
        config.fusion_threshold,
        overlap=overlap,
        bucket_dtype=DTYPES[config.gradient_dtype],
        compress=Settings(config.momentum, config.nesterov, config.gradient_clip)
        if config.gradient_density < 1
        else None,
    )
