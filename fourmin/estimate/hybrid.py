"""Where `hybrid` switches: its threshold by a cost model, and what it takes for each bucket."""

from __future__ import annotations

from dataclasses import replace

from fourmin.base.errors import FourminError
from fourmin.base.text import how_many
from fourmin.estimate.collectives import best_hybrid_threshold
from fourmin.estimate.models import fuse, load_shape
from fourmin.estimate.profile import Profile
from fourmin.estimate.step import grouping
from fourmin.recipe.allreduces import hybrid_table, needs, taken
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.fields import is_auto


def with_threshold(config: Configuration, profile: Profile) -> Configuration:
    """`config` with the number that `profile` gives for a hybrid threshold of AUTO.

    Raises FourminError for a model whose sizes are not known.
    """
    if not is_auto(config.hybrid_threshold):
        return config
    threshold = best_hybrid_threshold(
        bucket_sizes(config), config.hybrid_large, grouping(config), profile
    )
    return replace(config, hybrid_threshold=threshold)


def bucket_sizes(config: Configuration) -> list[int]:
    """Bytes of each bucket as it is sent, in the order of launch."""
    buckets = fuse(load_shape(config.model), config.fusion_threshold, config.gradient_dtype)
    return [bucket.nbytes for bucket in buckets]


def switching(config: Configuration) -> str:
    """What `hybrid` takes for the buckets of a run, in words; empty where nothing is to be said."""
    if not needs(config.allreduce, "hybrid_threshold") or config.workers == 1:
        return ""
    try:
        sizes = bucket_sizes(config)
    except FourminError:  # a model of which no sizes are known
        return ""
    table = hybrid_table(config.hybrid_threshold, config.hybrid_large)
    names = [taken(table, size) for size in sizes]
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    shares = " and ".join(f"{n} for {how_many(k, 'bucket')}" for n, k in counts.items())
    if len(counts) > 1:
        return f"hybrid takes {shares}"
    listed = ", ".join(f"{size:,}" for size in sizes)
    return (
        f"hybrid does not switch: it takes {shares}, of {listed} bytes; its threshold is "
        f"{config.hybrid_threshold:,}"
    )
