"""The hash chain: one canonical JSON record a line, each naming the line before it.

A record is `{"data", "hash", "index", "kind", "previous", "time_ms"}`. `previous` is the
SHA-256 of the raw bytes of the line before (64 zeros for the first), so no line can be
changed, dropped or moved without every later one telling; `hash` is the SHA-256 of the
record's canonical JSON without `hash`, so that the last line is guarded as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fourmin.base.canonical import StrictJSONError, canonical_bytes, loads_strict, sha256_hex

GENESIS = "0" * 64

KINDS = (
    "campaign-open",
    "seeds-assigned",
    "run-intent",
    "run-start",
    "run-restart",
    "run-result",
    "campaign-abandon",
    "campaign-close",
)

MAX_LINE_BYTES = 1 << 16


@dataclass(frozen=True)
class Entry:
    """One record of the ledger. `sha256` is that of its raw line: the head, if it is the last."""

    line: int
    index: int
    kind: str
    time_ms: int
    previous: str
    data: Mapping[str, Any]
    sha256: str


@dataclass(frozen=True)
class ChainProblem:
    """What is wrong with a line of the ledger: `json`, `canonical`, `shape` or `chain`."""

    kind: str
    line: int
    message: str


def encode(index: int, kind: str, time_ms: int, previous: str, data: Mapping[str, Any]) -> bytes:
    """The raw line, without its newline. Raises ValueError for data that JSON cannot hold."""
    record: dict[str, Any] = {
        "data": dict(data),
        "index": index,
        "kind": kind,
        "previous": previous,
        "time_ms": time_ms,
    }
    return canonical_bytes({**record, "hash": sha256_hex(canonical_bytes(record))})


def parse(data: bytes) -> tuple[list[Entry], list[ChainProblem]]:
    """The entries of a ledger's bytes, and everything that is wrong with its lines.

    Never raises for hostile bytes. A line that cannot be understood gives a problem and no
    entry.
    """
    entries: list[Entry] = []
    problems: list[ChainProblem] = []
    lines = data.split(b"\n")
    if lines[-1]:
        problems.append(ChainProblem("json", len(lines), "the last line has no line end"))
    else:
        lines.pop()
    previous = GENESIS
    for number, raw in enumerate(lines, start=1):
        entry = _parse_line(raw, number, previous, problems)
        if entry is not None:
            entries.append(entry)
        previous = sha256_hex(raw)
    return entries, problems


def _parse_line(
    raw: bytes, number: int, previous: str, problems: list[ChainProblem]
) -> Entry | None:
    try:
        record: Any = loads_strict(raw, max_bytes=MAX_LINE_BYTES)
    except StrictJSONError as error:
        problems.append(ChainProblem("json", number, str(error)))
        return None
    fields = {"data", "hash", "index", "kind", "previous", "time_ms"}
    well_formed = (
        isinstance(record, dict)
        and set(record) == fields
        and isinstance(record["data"], dict)
        and type(record["index"]) is int
        and type(record["time_ms"]) is int
        and all(isinstance(record[name], str) for name in ("hash", "kind", "previous"))
        and record["kind"] in KINDS
    )
    if not well_formed:
        problems.append(ChainProblem("shape", number, "not a ledger record of a known kind"))
        return None
    try:
        if canonical_bytes(record) != raw:
            problems.append(ChainProblem("canonical", number, "not canonical JSON (RFC 8785)"))
        unhashed = {name: value for name, value in record.items() if name != "hash"}
        if sha256_hex(canonical_bytes(unhashed)) != record["hash"]:
            problems.append(ChainProblem("chain", number, "the record does not match its hash"))
    except ValueError as error:
        problems.append(ChainProblem("canonical", number, str(error)))
    if record["previous"] != previous:
        problems.append(
            ChainProblem("chain", number, "`previous` is not the SHA-256 of the line before")
        )
    if record["index"] != number - 1:
        problems.append(
            ChainProblem("chain", number, f"index {record['index']} stands in place {number - 1}")
        )
    return Entry(
        line=number,
        index=record["index"],
        kind=record["kind"],
        time_ms=record["time_ms"],
        previous=record["previous"],
        data=record["data"],
        sha256=sha256_hex(raw),
    )
