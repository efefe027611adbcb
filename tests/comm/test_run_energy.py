"""Energy of a run over several nodes: the sum of what the first worker of each node counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from local_world import LocalWorld

GetWorld = Callable[[int], LocalWorld]


@pytest.mark.parametrize(
    ("by_node", "logged"),
    [
        ([7.5], {"joules": 7.5, "method": "rapl", "scope": "package-0", "nodes": [7.5]}),
        (
            [7.5, 4.0],
            {"joules": 11.5, "method": "rapl", "scope": "package-0", "nodes": [7.5, 4.0]},
        ),
        ([7.5, None], None),
        ([None, 4.0], None),
        ([None], None),
    ],
)
def test_rank_0_logs_what_every_node_counted_or_nothing(
    by_node: list[float | None], logged: dict[str, object] | None, world: GetWorld
) -> None:
    found = world(4).run("run_energy", by_node=by_node, started=True)
    assert found == [[logged] if logged else [], None, None, None]


def test_a_run_that_was_not_counted_from_its_start_has_no_energy(world: GetWorld) -> None:
    assert world(4).run("run_energy", by_node=[7.5], started=False) == [[], None, None, None]
