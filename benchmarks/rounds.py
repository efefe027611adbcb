"""Calls, rounds and bytes of a training step by all-reduce, and hops inside the library.

    python benchmarks/rounds.py --preset resnet50-64k --ranks 2048 [--json]

Counted from what training runs: calls of the composed all-reduces (`fourmin.recipe.calls`), rounds
of messages of the others (`fourmin.recipe.rounds`), for the buckets of the preset's gradients, on
the rank that does most. Bytes are those that it gives to collectives and sends in rounds. What
happens inside a collective is NCCL's: hops (messages one after the other) and bytes on the busiest
link come from the cost model of a system profile. `tuned` takes what that model finds fastest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.estimate.collectives import MODELLED
from fourmin.estimate.hybrid import bucket_sizes
from fourmin.estimate.profile import DEFAULT_PROFILE, load_profile
from fourmin.estimate.step import reduce_buckets, spread
from fourmin.recipe.presets import PRESETS, load_preset


def counted(preset: str, ranks: int, profile_name: str, group_size: int = 0) -> dict[str, Any]:
    """The counts of all algorithms. Raises FourminError for ranks that fill no nodes."""
    profile = load_profile(profile_name)
    config = load_preset(preset).resolved(profile.workers_per_node, keep_workers=True)
    node = max(1, min(ranks, config.procs_per_node, profile.workers_per_node))
    if ranks < 1 or ranks % node:
        raise FourminError(
            f"{ranks} ranks do not fill nodes of {node}", next_step=f"--ranks: a multiple of {node}"
        )
    config = spread(replace(config, group_size=group_size), ranks // node, node, 1)
    return {
        "preset": preset,
        "ranks": ranks,
        "ranks_per_node": node,
        "group_size": config.group_size or node,
        "gradient_dtype": config.gradient_dtype,
        "bucket_bytes": bucket_sizes(config),
        "system_profile": profile.name,
        "algorithms": {
            name: _sums(
                [
                    reduction.cost
                    for reduction in reduce_buckets(
                        replace(config, allreduce=name, tuning=()), profile
                    )
                ]
            )
            for name in MODELLED
        },
    }


def _sums(costs: list[Any]) -> dict[str, Any]:
    kinds = Counter(kind for cost in costs for kind in cost.collectives)
    return {
        "calls": sum(cost.calls for cost in costs),
        "collectives": dict(kinds),
        "rounds": sum(cost.rounds for cost in costs),
        "bytes": round(sum(cost.nbytes for cost in costs)),
        "library": {
            "hops": sum(cost.hops for cost in costs),
            "bytes": round(sum(cost.moved for cost in costs)),
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--preset", choices=[*PRESETS], default="resnet50-64k")
    parser.add_argument("--ranks", type=int, default=2048)
    parser.add_argument("--group-size", type=int, default=0, help="0: the node")
    parser.add_argument("--system-profile", default=DEFAULT_PROFILE)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        found = counted(options.preset, options.ranks, options.system_profile, options.group_size)
    except FourminError as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    sizes = ", ".join(f"{size:,}" for size in found["bucket_bytes"])
    print(f"{options.preset}, {options.ranks} ranks, buckets of {sizes} bytes; a step, on one rank")
    print(f"{'':17}{'calls':>7}{'rounds':>8}{'bytes':>15}   inside, by {found['system_profile']}:")
    print(f"{'':47}{'hops':>10}{'bytes':>15}   collectives")
    for name, each in found["algorithms"].items():
        kinds = ", ".join(f"{n} {kind}" for kind, n in each["collectives"].items())
        print(
            f"{name:17}{each['calls']:7,}{each['rounds']:8,}{each['bytes']:15,}"
            f"{each['library']['hops']:10,}{each['library']['bytes']:15,}   {kinds}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
