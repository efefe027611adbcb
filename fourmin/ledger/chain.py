"""The hash chain: one canonical JSON record a line, each naming the line before it.

A record is `{"data", "hash", "index", "kind", "previous", "time_ms"}`. `previous` is the
SHA-256 of the raw bytes of the line before (64 zeros for the first), so no line can be
changed, dropped or moved without every later one telling; `hash` is the SHA-256 of the
record's canonical JSON without `hash`, so that the last line is guarded as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fourmin.base.canonical import (
    StrictJSONError,
    canonical_bytes,
    loads_strict,
    sha256_hex,
)

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

ENDS = ("campaign-abandon", "campaign-close")
"""Nothing follows them."""

MAX_LINE_BYTES = 1 << 14
MAX_BYTES = 3 << 19
"""Of a ledger: more than the longest line of seeds has runs for, and many restarts of them."""
PATIENCE = 100
"""After so many problems, or lines after the end, the rest of a ledger is not read."""


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
    """What is wrong with a line: `json`, `canonical`, `shape`, `chain`, `schema`, or `patience`
    where reading ends.
    """

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


def parse(
    data: bytes, refused: Callable[[str, Mapping[str, Any]], Iterable[str]] | None = None
) -> tuple[list[Entry], list[ChainProblem]]:
    """The entries of a ledger's bytes, and what is wrong with its lines.

    `refused` says what a schema has against a kind's data. Never raises for hostile bytes. A
    line that cannot be understood gives a problem and no entry.
    """
    entries: list[Entry] = []
    problems: list[ChainProblem] = []
    previous, number, at, after_end = GENESIS, 0, 0, 0
    while at < len(data):
        number += 1
        wrong: list[tuple[str, str]] = []
        if len(problems) + after_end >= PATIENCE:
            message = f"{len(data) - at} bytes from here on are not read: too much is wrong"
            problems.append(ChainProblem("patience", number, message))
            break
        end = data.find(b"\n", at)
        if end < 0:
            wrong.append(("json", "the last line has no line end"))
            end = len(data)
        raw = data[at:end]
        at = end + 1
        digest = sha256_hex(raw)
        after_end += bool(after_end or (entries and entries[-1].kind in ENDS))
        entry = _entry(raw, number, previous, digest, wrong)
        if entry is not None:
            entries.append(entry)
            if refused is not None:
                wrong += [("schema", message) for message in refused(entry.kind, entry.data)]
        problems += [ChainProblem(kind, number, message) for kind, message in wrong]
        previous = digest
    return entries, problems


def _entry(
    raw: bytes, number: int, previous: str, digest: str, wrong: list[tuple[str, str]]
) -> Entry | None:
    """The entry of a line that can be understood; adds to `wrong` kind and message of what is wrong
    with it.
    """
    try:
        record: Any = loads_strict(raw, max_bytes=MAX_LINE_BYTES)
    except StrictJSONError as error:
        wrong.append(("json", str(error)))
        return None
    fields = {"data", "hash", "index", "kind", "previous", "time_ms"}
    well_formed = (
        isinstance(record, dict)
        and set(record) == fields
        and isinstance(record["data"], dict)
        and type(record["index"]) is int
        and type(record["time_ms"]) is int
        and record["time_ms"] >= 0
        and all(isinstance(record[name], str) for name in ("hash", "kind", "previous"))
        and record["kind"] in KINDS
    )
    if not well_formed:
        wrong.append(("shape", "not a ledger record of a known kind"))
        return None
    told = {name: value for name, value in record.items() if name != "hash"}
    try:
        if canonical_bytes(record) != raw:
            wrong.append(("canonical", "not canonical JSON (RFC 8785)"))
        if sha256_hex(canonical_bytes(told)) != record["hash"]:
            wrong.append(("chain", "the record does not match its hash"))
    except ValueError as error:
        wrong.append(("canonical", str(error)))
    if record["previous"] != previous:
        wrong.append(("chain", "`previous` is not the SHA-256 of the line before"))
    if record["index"] != number - 1:
        wrong.append(("chain", f"index {record['index']} stands in place {number - 1}"))
    return Entry(line=number, sha256=digest, **told)
