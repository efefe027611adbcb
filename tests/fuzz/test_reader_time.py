"""What the reader needs for a quarter of a megabyte of the same thing again and again.

A tracer would make it three times as slow.
"""

from __future__ import annotations

import pytest
from speed import SECOND, effort

from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline

pytestmark = pytest.mark.untraced

RECORD = (
    b':::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "POINT_IN_TIME", '
    b'"key": "seed", "value": %s, "metadata": {"file": "train.py", "lineno": 7}}'
)


@pytest.mark.parametrize(
    "piece",
    [b":::MLLOG {", b':::MLLOG {"', b":::MLLOG ", b":::ML", b"[", b'"', b"\r", b"\n", b"\xe9", b":",
     b":::MLLOG {}", b":::MLLOG {}\r", b':::MLLOG {"a":"\\u0041"}\n', b':::MLLOG {"a":[[[[[[',
     b":::MLL 1 a: ", b":::MLL 1 a: 1\n", b":::MLPv0.5.0 r 1 (a:1) k: v ", b":::MLPv0.5.0 r (((",
     RECORD % b"1" + b"\n", RECORD % b"[1]", b'\\ud800":::MLLOG {"', b":::MLLOG \t",
     b':::MLLOG {"\xe9', b':::MLLOG {"a": 1, \xf0\x9f\x98\x80"'],
)  # fmt: skip
def test_a_lot_of_anything_takes_linear_time(piece: bytes) -> None:
    data = piece * (2**18 // len(piece))
    most = SECOND  # it takes a quarter
    assert effort(lambda: Timeline(read_log(data, strict=True)), most) <= most
    read_log(b":::MLLOG {" + data)
