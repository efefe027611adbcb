"""The table of `tuned`: how it is read, made from measurements, and taken into a plan."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.campaign.prepare import resolve_configuration
from fourmin.campaign.request import Request
from fourmin.recipe.allreduces import CANDIDATES, LARGE, parse_entries
from fourmin.recipe.tuning import fastest_table, hybrid_thresholds, load_tuning

MEASURED = st.dictionaries(
    st.integers(1, 1 << 30),
    st.fixed_dictionaries({name: st.floats(0.001, 1000) for name in CANDIDATES}),
    min_size=1,
    max_size=12,
)


def choose(entries: tuple[str, ...], size: int) -> str:
    """A second implementation: the last entry that is not above the size."""
    return [name for start, name in parse_entries(entries) if start <= size][-1]


@given(MEASURED)
def test_the_table_takes_the_fastest_at_every_measured_size(
    measured: dict[int, dict[str, float]],
) -> None:
    entries = fastest_table(measured)
    for size, times in measured.items():
        assert times[choose(entries, size)] == min(times.values())
    names = [name for _, name in parse_entries(entries)]
    assert all(a != b for a, b in pairwise(names)), "entries that say nothing"


@given(MEASURED)
def test_no_threshold_of_hybrid_is_better_in_the_worst_case(
    measured: dict[int, dict[str, float]],
) -> None:
    def worst(large: str, threshold: int) -> float:
        return max(
            times["hierarchical" if size < threshold else large]
            / min(times["hierarchical"], times[large])
            for size, times in measured.items()
        )

    found = hybrid_thresholds(measured)
    assert set(found) == set(LARGE)
    for large, threshold in found.items():
        best = min(worst(large, at) for at in [0, *(size + 1 for size in measured)])
        assert worst(large, threshold) == pytest.approx(best)
    # The side that is taken switches as well as any, where that matters.
    least = min(worst(large, at) for large, at in found.items())
    assert worst(*next(iter(found.items()))) <= max(1.05, least) * (1 + 1e-9)


def test_of_sides_that_switch_well_the_fastest_is_taken() -> None:
    times = {"hierarchical": 1.0, "native": 9.0, "ring": 3.0, "torus": 2.0, "halving-doubling": 4.0}
    measured = {1 << 10: times, 1 << 20: {**times, "hierarchical": 5.0}}
    assert next(iter(hybrid_thresholds(measured).items())) == ("torus", 1 << 15)


def test_between_two_sizes_the_change_lies_at_their_geometric_mean() -> None:
    slow = dict.fromkeys(CANDIDATES, 9.0)
    measured = {1 << 10: {**slow, "torus": 1.0}, 1 << 14: {**slow, "ring": 1.0}}
    assert fastest_table(measured) == ("0:torus", f"{1 << 12}:ring")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "no algorithm for every size"),
        (["1:torus"], "no algorithm for every size"),
        (["0:torus", "5:ring", "5:native"], "no algorithm for every size"),
        (["0:tuned"], "unknown algorithm"),
        (["0:hybrid"], "unknown algorithm"),
        (["torus"], "makes no sense"),
        (["-1:torus"], "makes no sense"),
        (["0x10:torus"], "makes no sense"),
        (["²:torus"], "makes no sense"),
    ],
)
def test_a_bad_table_is_refused(entries: list[str], message: str) -> None:
    with pytest.raises(FourminError, match=message):
        parse_entries(entries)


@given(st.lists(st.text(max_size=20), max_size=4))
def test_any_text_is_parsed_or_refused(entries: list[str]) -> None:
    try:
        table = parse_entries(entries)
    except FourminError:
        return
    assert table[0][0] == 0


FILE: dict[str, Any] = {
    "tuning": ["0:torus", "65536:halving-doubling"],
    "hybrid_large": "torus",
    "hybrid_thresholds": {"torus": 4096, "ring": 8192},
    "workers": 2,
    "workers_per_node": 2,
    "group_size": 0,
    "device": "cpu",
}


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps({**FILE, **changes}))
    return path


def request(path: Path, **options: Any) -> Request:
    return Request(
        preset="digits",
        options={"procs_per_node": 2, **options},
        settings=("device=cpu",),
        practice=True,
        tuning=path,
    )


def test_a_file_enters_the_configuration_and_its_digest(tmp_path: Path) -> None:
    configuration = resolve_configuration(request(written(tmp_path)))
    assert configuration.allreduce == "tuned"
    assert configuration.tuning == ("0:torus", "65536:halving-doubling")
    other = resolve_configuration(request(written(tmp_path, tuning=["0:torus"])))
    assert other.digest() != configuration.digest()


def test_hybrid_takes_the_threshold_of_the_file_unless_one_is_given(tmp_path: Path) -> None:
    path = written(tmp_path)
    taken = resolve_configuration(request(path, allreduce="hybrid"))
    assert (taken.hybrid_large, taken.hybrid_threshold) == ("torus", 4096)
    asked = resolve_configuration(request(path, allreduce="hybrid", hybrid_threshold="auto"))
    assert asked == taken
    ring = resolve_configuration(request(path, allreduce="hybrid", hybrid_large="ring"))
    assert (ring.hybrid_large, ring.hybrid_threshold) == ("ring", 8192)
    given = resolve_configuration(request(path, allreduce="hybrid", hybrid_threshold=7))
    assert given.hybrid_threshold == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": 8, "workers_per_node": 4}, "workers 8 there, 2 in this run"),
        ({"device": "cuda"}, "device cuda there, cpu in this run"),
    ],
)
def test_a_table_of_other_conditions_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FourminError) as caught:
        resolve_configuration(request(written(tmp_path, **changes)))
    assert message in caught.value.why


def test_the_group_size_is_that_of_the_measurement(tmp_path: Path) -> None:
    path = written(tmp_path, group_size=1)
    assert resolve_configuration(request(path)).group_size == 1
    with pytest.raises(FourminError, match="group size 1 there, 2 in this run"):
        resolve_configuration(request(path, group_size=2))


def test_tuned_without_a_table_says_how_to_get_one() -> None:
    with pytest.raises(FourminError) as caught:
        resolve_configuration(
            Request(preset="digits", options={"allreduce": "tuned"}, practice=True)
        )
    assert "fourmin bench allreduce" in caught.value.next_step


def test_a_group_that_tears_nodes_is_refused_before_registration() -> None:
    with pytest.raises(FourminError, match="group size 3 does not fit 2 workers"):
        resolve_configuration(
            Request(preset="digits", options={"procs_per_node": 2, "group_size": 3}, practice=True)
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 10**5, "is not JSON"),
        (json.dumps({**FILE, "workers": 1e308}).replace("e+308", "e999"), "is not JSON"),
        ("[]", "no tuning file"),
        ("{}", "no tuning file"),
        (json.dumps({**FILE, "tuning": ["5:ring"]}), "no algorithm for every size"),
        (json.dumps({**FILE, "workers": "many"}), "no tuning file"),
        (json.dumps({**FILE, "hybrid_thresholds": 4096}), "no tuning file"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(FourminError, match=message):
        load_tuning(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FourminError, match="cannot read"):
        load_tuning(tmp_path / "absent.json")
