"""Which workers there are, and how they are grouped."""

from __future__ import annotations

from dataclasses import dataclass

from fourmin.base.errors import FourminError


@dataclass(frozen=True)
class Topology:
    """Which ranks there are and how they are grouped; use ``Topology.build``.

    ``groups`` partitions 0 .. world_size - 1 into runs of consecutive ranks, in order; the first
    rank of a group is its master. Groups may differ in size: 6 ranks on one node in groups
    of 4 are (0, 1, 2, 3) and (4, 5).
    """

    rank: int
    world_size: int
    group_size: int
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def build(
        cls, rank: int, world_size: int, ranks_per_node: int, group_size: int = 0
    ) -> Topology:
        """Group ``world_size`` ranks, of which each node holds ``ranks_per_node`` in a row.

        ``group_size`` 0 takes the node as the group. A size up to ``ranks_per_node`` splits each
        node (its last group may be smaller); a larger one must be a number of whole nodes, so
        that no node is torn between two groups (the last group may have fewer nodes).

        Raises FourminError for what does not fit, naming the sizes that would.
        """
        if world_size < 1 or not 0 <= rank < world_size:
            raise FourminError(
                f"rank {rank} does not exist among {world_size} processes",
                why="ranks count from 0 to the number of processes - 1",
            )
        if ranks_per_node < 1 or world_size % ranks_per_node:
            raise FourminError(
                f"{world_size} processes cannot be spread evenly, {ranks_per_node} on each node",
                why="every node must run the same number of processes",
                next_step="choose --procs-per-node among "
                + ", ".join(str(n) for n in range(1, world_size + 1) if world_size % n == 0),
            )
        check_group_size(group_size, world_size, ranks_per_node)
        size = group_size or ranks_per_node
        # Within a node for small groups, over whole nodes otherwise.
        span = ranks_per_node if size <= ranks_per_node else world_size
        groups = tuple(
            tuple(range(start, min(start + size, first + span)))
            for first in range(0, world_size, span)
            for start in range(first, first + span, size)
        )
        return cls(rank=rank, world_size=world_size, group_size=size, groups=groups)

    @property
    def group(self) -> tuple[int, ...]:
        """The ranks of this rank's group, its master first."""
        return next(group for group in self.groups if self.rank in group)


def check_group_size(group_size: int, workers: int, per_node: int) -> None:
    """Refuse groups that would tear a node in two, naming the sizes that fit; 0 is the node."""
    whole_nodes = group_size <= workers and group_size % per_node == 0
    if group_size >= 0 and (group_size <= per_node or whole_nodes):
        return
    fitting = f"1 to {workers if per_node == 1 else per_node}"
    if workers > per_node > 1:
        several = f"a multiple of {per_node} up to " if workers > 2 * per_node else ""
        fitting += f", or {several}{workers}"
    raise FourminError(
        f"group size {group_size} does not fit {workers} workers, {per_node} on each node",
        "a group is a part of one node or a number of whole nodes",
        f"--group-size {fitting}; 0 stands for the node",
    )
