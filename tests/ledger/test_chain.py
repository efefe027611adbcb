"""The hash chain: what was encoded is read back, and nothing else is."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourmin.ledger.chain import GENESIS, KINDS, MAX_LINE_BYTES, encode, parse

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner,
                                                                max_size=3),
    max_leaves=8,
)  # fmt: skip
_RECORDS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 2**53 - 1),
        st.dictionaries(st.text(max_size=8), _VALUES, max_size=4),
    ),
    max_size=6,
)


def _ledger(records: list[tuple[str, int, dict[str, Any]]]) -> bytes:
    previous, lines = GENESIS, []
    for index, (kind, time_ms, data) in enumerate(records):
        line = encode(index, kind, time_ms, previous, data)
        previous = hashlib.sha256(line).hexdigest()
        lines.append(line + b"\n")
    return b"".join(lines)


THREE = _ledger([("campaign-open", 1, {"a": 1}), ("run-intent", 2, {}), ("run-start", 3, {"b": 2})])


def _kinds(data: bytes) -> set[str]:
    return {problem.kind for problem in parse(data)[1]}


@given(_RECORDS)
def test_what_is_encoded_is_read_back(records: list[tuple[str, int, dict[str, Any]]]) -> None:
    data = _ledger(records)
    entries, problems = parse(data)
    assert problems == []
    assert [(e.kind, e.time_ms, dict(e.data)) for e in entries] == records
    assert [e.index for e in entries] == list(range(len(records)))
    assert [e.line for e in entries] == list(range(1, len(records) + 1))
    for entry, line in zip(entries, data.splitlines(), strict=True):
        assert entry.sha256 == hashlib.sha256(line).hexdigest()


@given(st.data())
def test_any_changed_byte_is_a_problem(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(THREE) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != THREE[at]))
    assert parse(THREE[:at] + bytes([byte]) + THREE[at + 1 :])[1]


@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    entries, problems = parse(data)
    assert problems or not data
    assert len(entries) <= data.count(b"\n") + 1


@pytest.mark.parametrize("at", [0, 1])
def test_a_dropped_line(at: int) -> None:
    lines = THREE.splitlines(keepends=True)
    del lines[at]
    assert _kinds(b"".join(lines)) == {"chain"}


def _problems(lines: list[bytes]) -> list[tuple[str, int]]:
    found = parse(b"".join(line + b"\n" for line in lines))[1]
    return [(problem.kind, problem.line) for problem in found]


def test_a_line_written_anew_with_its_own_hash_shows_in_the_next() -> None:
    first, _, third = THREE.splitlines()
    forged = encode(1, "run-intent", 2, hashlib.sha256(first).hexdigest(), {"forged": 1})
    assert _problems([first, forged, third]) == [("chain", 3)]
    assert _problems([first, forged]) == [], "the last line is guarded by who quotes the head"


@pytest.mark.parametrize("index", [0, 2, 7])
def test_a_line_that_counts_wrong(index: int) -> None:
    first = THREE.splitlines()[0]
    wrong = encode(index, "run-intent", 2, hashlib.sha256(first).hexdigest(), {})
    third = encode(2, "run-start", 3, hashlib.sha256(wrong).hexdigest(), {})
    assert _problems([first, wrong, third]) == [("chain", 2)]


def test_the_chain_goes_over_raw_bytes() -> None:
    """A line that means the same but is spelt otherwise is another line."""
    first, second, third = THREE.splitlines()
    spelt = second.replace(b'"index":1', b'"index": 1')
    assert ("canonical", 2) in _problems([first, spelt, third])
    assert ("chain", 3) in _problems([first, spelt, third])


def test_swapped_and_doubled_lines() -> None:
    one, two, three = THREE.splitlines(keepends=True)
    assert _kinds(one + three + two) == {"chain"}
    assert _kinds(one + two + two + three) == {"chain"}


def test_a_last_line_without_its_end() -> None:
    entries, problems = parse(THREE[:-1])
    assert [(p.kind, p.line) for p in problems] == [("json", 3)]
    assert len(entries) == 3
    entries, problems = parse(THREE[:-5])
    assert {p.kind for p in problems} == {"json"}
    assert len(entries) == 2


def _line(**changes: Any) -> bytes:
    record = json.loads(THREE.splitlines()[0]) | changes
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        (_line(), set()),
        (_line(hash="0" * 64), {"chain"}),
        (_line(kind="run-again"), {"shape"}),
        (_line(extra=1), {"shape"}),
        (_line(index=True), {"shape"}),
        (_line(index=0.0), {"shape"}),
        (_line(data=[]), {"shape"}),
        (_line(previous=None), {"shape"}),
        (_line(time_ms=1.5), {"shape"}),
        (_line(time_ms=2**60), {"canonical"}),
        (b'"text"\n', {"shape"}),
        (b"\n", {"json"}),
        (_line().replace(b":", b": ", 1), {"canonical"}),
        (_line().replace(b'"kind"', b'"kind":"run-start","kind"'), {"json"}),
    ],
)
def test_lines_that_are_no_records(line: bytes, kinds: set[str]) -> None:
    assert _kinds(line) == kinds


def test_a_line_beyond_the_limit() -> None:
    line = encode(0, "campaign-abandon", 1, GENESIS, {"reason": "x" * MAX_LINE_BYTES})
    assert _kinds(line + b"\n") == {"json"}


def test_what_json_cannot_hold() -> None:
    with pytest.raises(ValueError, match="canonical"):
        encode(0, "run-start", 1, GENESIS, {"x": float("nan")})
    with pytest.raises(ValueError, match="canonical"):
        encode(0, "run-start", 1, GENESIS, {"x": 2**53})
