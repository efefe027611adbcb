"""The list of all-reduces: every entry can be built, configured, estimated and grouped."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.estimate.collectives import MODELLED, cost_of
from fourmin.recipe.allreduces import (
    ALL_REDUCES,
    CANDIDATES,
    LARGE,
    NAMES,
    AllReduceEntry,
    hybrid_table,
    needs,
    taken,
)
from fourmin.recipe.configuration import FIELDS
from fourmin.recipe.presets import load_preset
from fourmin.recipe.topology import Topology, check_group_size


class Switched:
    hybrid_threshold, hybrid_large, tuning = 1000, "torus", ("0:torus", "7:ring")


@pytest.mark.parametrize("entry", ALL_REDUCES.values(), ids=lambda entry: entry.name)
def test_an_entry_names_what_exists(entry: AllReduceEntry) -> None:
    kinds = [entry.module, entry.stages, entry.table]
    assert sum(map(bool, kinds)) == 1, "one that sums, or one that chooses"
    assert set(entry.needs) <= set(FIELDS)
    assert entry.meaning
    assert entry.formula
    if entry.module:
        assert find_spec(f"fourmin.training.comm.{entry.module}")
    if entry.cost:
        assert callable(cost_of(entry.name))
    if entry.table:
        taken_by_it = {name for _, name in entry.table(Switched())}
        assert taken_by_it <= set(CANDIDATES)


def test_the_configuration_takes_every_name_and_a_table_those_that_sum() -> None:
    assert FIELDS["allreduce"].choices == NAMES
    assert set(CANDIDATES) == set(NAMES) - {"hybrid", "tuned"}
    assert set(MODELLED) == set(NAMES)


def test_one_without_a_cost_model_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = AllReduceEntry(name="star", meaning="through one", formula="unknown", module="native")
    monkeypatch.setitem(ALL_REDUCES, "star", entry)
    with pytest.raises(FourminError, match="star has no cost model") as caught:
        cost_of("star")
    assert caught.value.exit_code == 2
    assert "torus" in caught.value.next_step


@given(st.integers(0, 100), st.integers(0, 200), st.sampled_from(LARGE))
def test_hybrid_is_hierarchical_below_its_threshold(
    threshold: int, nbytes: int, large: str
) -> None:
    expected = "hierarchical" if nbytes < threshold else large
    assert taken(hybrid_table(threshold, large), nbytes) == expected


def test_what_is_not_known_needs_nothing() -> None:
    assert needs("tuned", "tuning")
    assert not needs("ring", "tuning")
    assert not needs("magic", "tuning")


@given(nodes=st.integers(1, 6), per_node=st.integers(1, 8), group_size=st.integers(-2, 60))
def test_groups_fit_exactly_when_they_tear_no_node(
    nodes: int, per_node: int, group_size: int
) -> None:
    workers = nodes * per_node
    size = group_size or per_node
    inside = 0 < size <= per_node
    of_whole_nodes = size in range(per_node, workers + 1, per_node)
    if inside or of_whole_nodes:
        check_group_size(group_size, workers, per_node)
        return
    with pytest.raises(FourminError, match=f"group size {group_size} does not fit {workers} "):
        check_group_size(group_size, workers, per_node)


def test_a_plan_and_a_worker_refuse_a_group_in_the_same_words() -> None:
    plan = dataclasses.replace(
        load_preset("digits").resolved(0, keep_workers=True), procs_per_node=2, group_size=3
    )
    with pytest.raises(FourminError) as before:
        plan.check()
    with pytest.raises(FourminError) as later:
        Topology.build(0, 2, ranks_per_node=2, group_size=3)
    assert str(before.value) == str(later.value)
    assert "--group-size 1 to 2" in before.value.next_step
