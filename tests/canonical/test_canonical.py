from __future__ import annotations

import json
import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speed import SECOND, effort

from fourmin.base.canonical import (
    KINDS,
    MAX_DEPTH,
    MAX_NUMBER_LENGTH,
    StrictJSONError,
    canonical_bytes,
    loads_strict,
    sha256_hex,
)

SAFE = 2**53 - 1
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("data", "kind", "line"),
    [
        (b'{"a": 1,\n "a": 2}', "duplicate-key", 2),
        (b'{"a": 1,\n "\\u0061": 2}', "duplicate-key", 2),
        (b'{"x": [{"a": 1}, {"a": 2,\n\n"a": 3}]}', "duplicate-key", 3),
        (b'{"a":1, "b": {"c": 1, "c": 2},\n "a": 1}', "duplicate-key", 1),
        (b"[1,\nNaN]", "nan", 2),
        (b"[\n\nInfinity]", "infinity", 3),
        (b"[-Infinity]", "infinity", 1),
        (b"\n1e999", "number-overflow", 2),
        (b"[-1e+400]", "number-overflow", 1),
        (b"1E0000309", "number-overflow", 1),
        (b"\xef\xbb\xbf{}", "byte-order-mark", 1),
        (b"\xff\xfe{\0}\0", "byte-order-mark", 1),
        (b"{} {}", "trailing-bytes", 1),
        (b"{}\n\0", "trailing-bytes", 2),
        (b"[" + b"1" * 65 + b"]", "number-too-long", 1),
        (b"[\n0." + b"1" * 70 + b"]", "number-too-long", 2),
        (b"[" * 65 + b"]" * 65, "too-deep", 1),
        (b'{"a":\n' * 65, "too-deep", 65),
        (b'["\n\xe9"]', "not-utf8", 2),
        (b'["\xed\xa0\x80"]', "not-utf8", 1),
        (b'["a",\n"\\ud800"]', "lone-surrogate", 2),
        (b'{"\\uDFFF": 1}', "lone-surrogate", 1),
        (b" " * 2000, "too-large", None),
        (b"", "syntax", 1),
        (b"{\n'a': 1}", "syntax", 2),
        (b'"a\nb"', "syntax", 1),
        (b"[01]", "syntax", 1),
        (b"[1,]", "syntax", 1),
        (b'"\\', "syntax", 1),
        (b"inf", "syntax", 1),
    ],
)
def test_refuses(data: bytes, kind: str, line: int | None) -> None:
    with pytest.raises(StrictJSONError) as caught:
        loads_strict(data, max_bytes=1000)
    assert (caught.value.kind, caught.value.line) == (kind, line)
    assert kind in KINDS
    assert caught.value.message


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": {"a": 1}, "b": {"a": 1}}\n',
        b'["NaN", "1e999", "[[[[", "{\\"a\\": 1, \\"a\\": 2}", "\\\\"]',
        b'["\\ud83d\\ude00"]',
        b"[1e308, 1e-999, " + b"1" * 64 + b"]",
        b'["' + b"1" * 500 + b'"]',
        b'["' + b"[" * 500 + b'"]',
        b"[" * 64 + b"]" * 64,
        b"[" + b"[]," * 200 + b"[]]",
    ],
)
def test_accepts_what_json_accepts(data: bytes) -> None:
    assert loads_strict(data) == json.loads(data)


def test_limits() -> None:
    deep = MAX_DEPTH + 1
    with pytest.raises(StrictJSONError, match=f"nested more than {MAX_DEPTH} deep"):
        loads_strict(b"[" * deep + b"]" * deep)
    with pytest.raises(StrictJSONError, match=f"the limit is {MAX_NUMBER_LENGTH}"):
        loads_strict(b"1" * (MAX_NUMBER_LENGTH + 1))
    with pytest.raises(StrictJSONError) as caught:
        loads_strict(b"1" + b"0" * 5000)
    assert caught.value.kind == "number-too-long"


@given(values)
def test_reads_every_json_value(value: object) -> None:
    assert loads_strict(json.dumps(value).encode()) == value


@given(
    st.binary(max_size=200)
    | st.text('[]{}",:0123456789eE+-.NaInfity\\u \n', max_size=200).map(str.encode)
)
@settings(max_examples=500)
def test_any_bytes_raise_nothing_else(data: bytes) -> None:
    try:
        value = loads_strict(data)
    except StrictJSONError as error:
        refusal = error
    else:
        assert value == json.loads(data)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        return
    assert refusal.kind in KINDS
    assert refusal.line is None or refusal.line >= 1


@pytest.mark.untraced
@pytest.mark.parametrize(
    "piece", [b"[", b'"\\"', b'{"a":', b"1", b"1e", b'"', b"[]", b'"a",', b"\\"]
)
def test_a_megabyte_of_anything_takes_linear_time(piece: bytes) -> None:
    data = piece * (2**20 // len(piece))

    def refuse() -> None:
        with pytest.raises(StrictJSONError):
            loads_strict(data)

    assert effort(refuse, SECOND) <= SECOND


def test_deep_input_needs_no_stack() -> None:
    limit = sys.getrecursionlimit()
    with pytest.raises(StrictJSONError) as caught:
        loads_strict(b"[" * (limit * 10))
    assert caught.value.kind == "too-deep"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [True, None, "é\n"]}, '{"a":[true,null,"é\\n"],"b":1}'),
        (
            {"numbers": [1.0, 1e21, 1e-7, 333333333.33333329, -0.0]},
            '{"numbers":[1,1e+21,1e-7,333333333.3333333,0]}',
        ),
        # Sorted by UTF-16 units: U+1F600 (surrogates) comes before U+FB33.
        ({"\ufb33": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufb33":1}'),
    ],
)
def test_canonical_form(value: dict[str, object], expected: str) -> None:
    assert canonical_bytes(value).decode() == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 2**53, {1: 2}, "\ud800", {"\ud800": 1}, object(), b"a", {1, 2}]
)
def test_no_canonical_form(value: object) -> None:
    with pytest.raises(ValueError, match="no canonical JSON"):
        canonical_bytes(value)  # type: ignore[arg-type]


def test_too_deep_for_canonical_form() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="no canonical JSON"):
        canonical_bytes(value)  # type: ignore[arg-type]


def is_ordinary(number: float) -> bool:
    """Not one of the floats that RFC 8785 writes as an integer beyond 2^53 - 1."""
    return not SAFE < abs(number) < 1e21


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False).filter(is_ordinary)
        | values.filter(lambda value: not isinstance(value, (float, list, dict)))
    )
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-SAFE, SAFE))
)
def test_canonical_form_is_strict_and_stable(value: object) -> None:
    once = canonical_bytes(value)  # type: ignore[arg-type]
    again = loads_strict(once)
    assert canonical_bytes(again) == once
    assert again == value


def test_sha256() -> None:
    assert sha256_hex(b"abc").startswith("ba7816bf")
    assert len(sha256_hex(b"")) == 64
