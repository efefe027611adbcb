"""An all-reduce is added to a copy of the package, in three files, and used everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tree_copy import TreeCopy

ENTRY = """\
        AllReduceEntry(
            name="star",
            meaning="reduce to rank 0, broadcast",
            formula="2(p-1) (a + n b)",
            module="star",
            cost="{cost}",
        ),
"""

MODULE = '''\
"""Star all-reduce: reduce to rank 0, broadcast."""

import torch.distributed as dist
from torch import Tensor

from fourmin.training.comm.base import AllReduceOptions, require_flat
from fourmin.recipe.topology import Topology


class StarAllReduce:
    name = "star"

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size

    def all_reduce(self, tensor: Tensor) -> None:
        require_flat(tensor)
        if self._world_size > 1 and tensor.numel():
            dist.reduce(tensor, 0)
            dist.broadcast(tensor, 0)


def build(topology: Topology, options: AllReduceOptions) -> StarAllReduce:
    return StarAllReduce(topology.world_size)
'''

COST = '''

def star(nbytes: float, grouping: Grouping, profile: Profile) -> Cost:
    """Rank 0 hears from every other, and answers."""
    rounds = 2 * (grouping.ranks - 1)
    _, round_seconds = _round_seconds(profile)
    seconds = rounds * (round_seconds + nbytes / profile.between_bandwidth)
    return Cost(seconds, (), rounds, rounds * nbytes)
'''

# Each command is a process of its own, with the copy first on the path.
pytestmark = pytest.mark.slow


def add(copy: TreeCopy, *, cost: bool) -> None:
    before = '        AllReduceEntry(\n            name="hybrid",'
    entry = ENTRY.format(cost="collectives.star" if cost else "")
    copy.replace("fourmin/recipe/allreduces.py", before, entry + before)
    package = copy.root / "fourmin"
    (package / "training" / "comm" / "star.py").write_text(MODULE)
    if cost:
        models = package / "estimate" / "collectives.py"
        models.write_text(models.read_text() + COST)


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> TreeCopy:
    copy = TreeCopy(tmp_path_factory.mktemp("star"))
    add(copy, cost=True)
    by_hand = copy.changed()
    assert len(by_hand) == 3
    copy.python("docs/tools/recipe_pages.py")
    generated = copy.changed() - by_hand
    assert generated == {
        "docs/allreduce.md",
        "docs/configuration.md",
        "rules/1.0/schemas/campaign.schema.json",
        "rules/1.0/schemas/result.schema.json",
    }
    return copy


RUN = (
    "run", "--practice", "--runs", "1", "--max-steps", "2", "--set", "device=cpu",
    "--procs-per-node", "2",
)  # fmt: skip


def test_a_run_takes_it_and_validates(star: TreeCopy) -> None:
    star.fourmin(*RUN, "--allreduce", "star", "--results-dir", "plain")
    star.fourmin("validate", "plain")
    (result,) = star.root.glob("plain/*/run-1/result.json")
    assert set(json.loads(result.read_bytes())["communication"]["algorithms"]) == {"star"}


def test_help_and_documentation_name_it(star: TreeCopy) -> None:
    for command in ("run", "estimate"):
        words = " ".join(star.fourmin(command, "--help").split())
        assert "halving-doubling, torus, star, hybrid or tuned." in words
    docs = star.root / "docs"
    assert "| `star` | reduce to rank 0, broadcast |" in (docs / "allreduce.md").read_text()
    assert "`torus`, `star`, `hybrid`, `tuned`" in (docs / "configuration.md").read_text()


def test_an_estimate_takes_its_cost(star: TreeCopy) -> None:
    text = star.fourmin(
        "estimate", "--allreduce", "star", "--preset", "resnet50-8k", "--nodes", "4", "--json"
    )
    found = json.loads(text)
    assert {bucket["algorithm"] for bucket in found["step"]["buckets"]} == {"star"}
    times = found["milliseconds_by_allreduce"]
    assert times["star"] == pytest.approx(found["step"]["milliseconds"])
    # 31 times all bytes there and back are the slowest way there is.
    assert times["star"] == max(times.values())


def test_a_measurement_has_it(star: TreeCopy) -> None:
    star.fourmin(
        "bench", "allreduce", "--device", "cpu", "--procs", "2", "--max-size", "4KiB",
        "--iterations", "3", "--seconds", "1", "--output", "measured.json",
    )  # fmt: skip
    rows = json.loads((star.root / "measured.json").read_bytes())["rows"]
    assert [row["bytes"] for row in rows if row["algorithm"] == "star"] == [1024, 4096]


def test_a_table_that_names_it_is_followed(star: TreeCopy) -> None:
    table = {
        "tuning": ["0:star", "100000:torus"],
        "hybrid_large": "torus",
        "hybrid_thresholds": {"torus": 0},
        "workers": 2,
        "workers_per_node": 2,
        "group_size": 0,
        "device": "cpu",
    }
    (star.root / "tuning.json").write_text(json.dumps(table))
    star.fourmin(
        *RUN, "--tuning", "tuning.json", "--fusion-threshold", "65536", "--results-dir", "tuned"
    )
    star.fourmin("validate", "tuned")
    (result,) = star.root.glob("tuned/*/run-1/result.json")
    said = json.loads(result.read_bytes())["communication"]
    expected = ["torus" if size >= 100_000 else "star" for size in said["bucket_bytes"]]
    assert said["algorithms"] == expected
    assert set(expected) == {"star", "torus"}


def test_without_a_cost_model_only_its_own_estimate_is_refused(tmp_path: Path) -> None:
    copy = TreeCopy(tmp_path)
    add(copy, cost=False)
    assert len(copy.changed()) == 2
    estimate = ("estimate", "--preset", "resnet50-8k", "--nodes", "4", "--allreduce")
    refused = copy.fourmin(*estimate, "star", code=2)
    assert "the all-reduce star has no cost model" in refused
    assert "why:" in refused
    assert "next:" in refused
    assert "Traceback" not in refused
    tuned = json.loads(copy.fourmin(*estimate, "tuned", "--json"))
    assert "star" not in tuned["milliseconds_by_allreduce"]
    assert set(tuned["milliseconds_by_allreduce"]) >= {"native", "torus", "hybrid", "tuned"}
