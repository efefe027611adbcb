"""One record of an event log, in each of the dialects that MLPerf's rounds have used.

MLLOG (v0.7 and later), `:::MLLOG {"namespace": .., "time_ms": .., "event_type": .., "key": ..,
"value": .., "metadata": {..}}`; MLL (v0.6), `:::MLL <seconds> <key>: {"value": ..,
"metadata": {..}}`; MLPv0.5.0, `:::MLPv0.5.0 <benchmark> <seconds> (<file>:<line>) <key>: <value>`.

The functions here take one record's text apart carefully, whatever it holds; the reader has a
faster path for the records that are beyond doubt.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, NamedTuple

from fourmin.base.canonical import JSON, MAX_DEPTH, MAX_NUMBER_LENGTH
from fourmin.log.keys import EVENT_TYPES

MLLOG = "MLLOG"
MLL = "MLL"
MLP = "MLPv0.5.0"

PROBLEM_KINDS = {
    "unreadable": "the file cannot be read, or is no regular file",
    "too-large": "the file has more bytes than the limit",
    "too-many-records": "the file has more records than the limit; the rest was not read",
    "no-records": "the file holds no record at all",
    "byte-order-mark": "the file starts with a byte-order mark",
    "text-before-record": "other text stands on the line before a record",
    "text-after-record": "other text stands on the line after a record",
    "glued-records": "a record follows another on the same line",
    "outside-record": "bytes that are not `:::MLLOG {json}` and a line feed (strict reading only)",
    "malformed-record": "a record's text is not what its dialect asks for; it was skipped",
    "truncated-record": "a record ends too early; it was skipped",
    "record-too-long": "a record has more characters than the limit; it was skipped",
    "too-deep": "a value is nested deeper than the limit; it was left out",
    "duplicate-key": "an object in a record has one key twice; the last value was kept",
    "not-finite": "a number in a record is NaN or infinite; it was kept as text",
    "number-too-long": "a number in a record has too many characters; it was kept as text",
    "not-utf8": "a record holds bytes that are not UTF-8; they were replaced",
    "lone-surrogate": "a record escapes half of a surrogate pair; it was replaced",
    "missing-field": "a field of the record is missing",
    "unknown-field": "the record has a field that MLPerf does not define",
    "wrong-type": "a field of the record has another type than MLPerf defines",
    "unknown-event-type": "event_type is none of the three that MLPerf defines",
    "time-not-integer": "time_ms is not an integer",
    "time-not-a-time": "time_ms is no number, or not a time that a clock could give",
}
"""Every kind of problem, with its meaning."""

LARGEST_INTEGER = 2**63
LATEST_MS = 2**53 - 1


class Record(NamedTuple):
    """One event, immutable.

    `time_ms` is as logged (an int from MLLOG as it should be, a float where it was logged as one
    or in seconds) or None. `event_type` is None where it is missing or unknown, as it always is
    in MLL and MLPv0.5.0. Fields that are missing or have a wrong type are empty here, and a
    problem says so.
    """

    line: int
    namespace: str
    time_ms: float | None
    event_type: str | None
    key: str
    value: JSON
    metadata: dict[str, JSON]
    dialect: str


class LogProblem(NamedTuple):
    """What is wrong in a log: one of `PROBLEM_KINDS`, a line (from 1) and a sentence."""

    kind: str
    line: int
    message: str


class ParseError(Exception):
    """No record could be made of the text: the problem's kind and message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Parsed(NamedTuple):
    """A record, the offset after it in the text, and (kind, message) of what was odd in it."""

    record: Record
    end: int
    oddities: list[tuple[str, str]]


FIELDS = ("namespace", "time_ms", "event_type", "key", "value", "metadata")
_fields_of = itemgetter(*FIELDS)
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_MLL_HEAD = re.compile(r"([0-9]+(?:\.[0-9]*)?)[ \t]+([A-Za-z0-9_]+)[ \t]?:[ \t]*")
_MLP_HEAD = re.compile(
    r"(\S+)[ \t]+([0-9]+(?:\.[0-9]*)?)[ \t]+\(([^()]*):([0-9]{1,9})\)[ \t]+([A-Za-z0-9_]+)[ \t]?"
)


def parse_mllog(text: str, line: int) -> Parsed:
    """The record whose JSON object begins at the start of `text`.

    Raises `ParseError` where there is none.
    """
    oddities: list[tuple[str, str]] = []
    fields, end = _decode(text, oddities)
    if not isinstance(fields, dict):
        raise ParseError("malformed-record", "the record is not a JSON object")
    missing = [name for name in FIELDS if name not in fields]
    if missing:
        oddities.append(("missing-field", f"without {', '.join(missing)}"))
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        oddities.append(("unknown-field", f"unknown: {', '.join(unknown)[:200]}"))
    event_type = _typed(fields, "event_type", str, None, oddities)
    if event_type is not None and event_type not in EVENT_TYPES:
        oddities.append(("unknown-event-type", f"event_type {event_type[:40]!r}"))
        event_type = None
    record = Record(
        line=line,
        namespace=_typed(fields, "namespace", str, "", oddities),
        time_ms=_time_ms(fields["time_ms"], oddities) if "time_ms" in fields else None,
        event_type=event_type,
        key=_typed(fields, "key", str, "", oddities),
        value=fields.get("value"),
        metadata=_typed(fields, "metadata", dict, {}, oddities),
        dialect=MLLOG,
    )
    return Parsed(record, end, oddities)


def parse_mll(text: str, line: int) -> Parsed:
    """The v0.6 record in `text`, which begins after the token. Raises `ParseError`."""
    head = _MLL_HEAD.match(text)
    if head is None:
        raise ParseError("malformed-record", "not `<seconds> <key>: <JSON>`")
    oddities: list[tuple[str, str]] = []
    fields, used = _decode(text[head.end() :], oddities)
    if isinstance(fields, dict) and "value" in fields:
        metadata = _typed(fields, "metadata", dict, {}, oddities)
        value = fields["value"]
    else:
        oddities.append(("missing-field", "without value"))
        metadata, value = {}, fields
    time_ms = _seconds(head.group(1), oddities)
    record = Record(line, "", time_ms, None, head.group(2), value, metadata, MLL)
    return Parsed(record, head.end() + used, oddities)


def parse_mlp(text: str, line: int) -> Parsed:
    """The v0.5 record in `text`, which begins after the token. Raises `ParseError`.

    The value is JSON where it can be, otherwise the text as it stands, and None where there is
    none; the benchmark, file and line go to the metadata.
    """
    head = _MLP_HEAD.match(text)
    if head is None:
        raise ParseError("malformed-record", "not `<benchmark> <seconds> (<file>:<line>) <key>`")
    oddities: list[tuple[str, str]] = []
    value: JSON = None
    end = head.end()
    if text[end : end + 1] == ":":
        value = _mlp_value(text[end + 1 :].strip(), oddities)
        end = len(text)
    clean = _without_escaped_bytes(text, head.end(), oddities)
    benchmark, seconds, file, lineno, key = (clean[slice(*span)] for span in head.regs[1:])
    metadata: dict[str, JSON] = {"benchmark": benchmark, "file": file, "lineno": int(lineno)}
    record = Record(line, "", _seconds(seconds, oddities), None, key, value, metadata, MLP)
    return Parsed(record, end, oddities)


def _mlp_value(text: str, oddities: list[tuple[str, str]]) -> JSON:
    """JSON where all of `text` is JSON, otherwise the text itself, and None where it is empty."""
    if not text:
        return None
    in_value: list[tuple[str, str]] = []
    try:
        value, used = _decode(text, in_value)
    except ParseError as error:
        if error.kind == "too-deep":
            raise
        return _without_escaped_bytes(text, len(text), oddities)
    if used != len(text):
        return _without_escaped_bytes(text, len(text), oddities)
    oddities.extend(in_value)
    return value  # type: ignore[no-any-return]


def _decode(text: str, oddities: list[tuple[str, str]]) -> tuple[Any, int]:
    """The JSON value at the start of `text` and the offset after it, made harmless."""
    found: set[str] = set()
    try:
        value, end = _decoder(found).raw_decode(_ESCAPED_BYTE.sub("\ufffd", text))
    except json.JSONDecodeError as error:
        raise syntax_error(error, text) from None
    except RecursionError:
        raise ParseError("too-deep", f"nested more than {MAX_DEPTH} deep") from None
    if _is_deeper(value, MAX_DEPTH):
        raise ParseError("too-deep", f"nested more than {MAX_DEPTH} deep")
    _without_escaped_bytes(text, end, oddities)
    if "\\u" in text[:end]:
        value = _without_surrogates(value, found)
    oddities.extend((kind, PROBLEM_KINDS[kind]) for kind in sorted(found))
    return value, end


def syntax_error(error: json.JSONDecodeError, text: str) -> ParseError:
    """A truncated record where the text ran out, otherwise a malformed one."""
    if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
        return ParseError("truncated-record", f"cut off after {len(text)} characters")
    return ParseError("malformed-record", f"not JSON: {error.msg} at character {error.pos + 1}")


def _decoder(found: set[str]) -> json.JSONDecoder:
    """A decoder that notes in `found` what strict JSON would refuse, and carries on."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            found.add("duplicate-key")
        return value

    def constant(text: str) -> str:
        found.add("not-finite")
        return text

    def integer(text: str) -> int | str:
        if len(text) > MAX_NUMBER_LENGTH or not -LARGEST_INTEGER < int(text) < LARGEST_INTEGER:
            found.add("number-too-long")
            return text
        return int(text)

    def number(text: str) -> float | str:
        if len(text) > MAX_NUMBER_LENGTH:
            found.add("number-too-long")
            return text
        value = float(text)
        if math.isinf(value):
            found.add("not-finite")
            return text
        return value

    return json.JSONDecoder(
        object_pairs_hook=unique, parse_constant=constant, parse_int=integer, parse_float=number
    )


def _is_deeper(value: Any, limit: int) -> bool:
    """Whether containers are nested more than `limit` deep; without recursion."""
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return any(isinstance(item, (dict, list)) for item in level)


def _without_escaped_bytes(text: str, end: int, oddities: list[tuple[str, str]]) -> str:
    """`text[:end]` with the bytes that were no UTF-8 replaced, which is noted."""
    part = text[:end]
    clean = _ESCAPED_BYTE.sub("\ufffd", part)
    if clean != part:
        oddities.append(("not-utf8", PROBLEM_KINDS["not-utf8"]))
    return clean


def _without_surrogates(value: Any, found: set[str]) -> Any:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        found.add("lone-surrogate")
        return json.loads(text.encode("utf-8", "replace"))
    return value


def _typed(
    fields: dict[str, Any], name: str, kind: type, default: Any, oddities: list[tuple[str, str]]
) -> Any:
    if name not in fields:
        return default
    value = fields[name]
    if isinstance(value, kind):
        return value
    oddities.append(("wrong-type", f"{name} is {_type_name(value)}"))
    if kind is str and isinstance(value, (int, float)):
        return str(value)
    return default


def _time_ms(value: Any, oddities: list[tuple[str, str]]) -> float | None:
    """`time_ms` as a number, where any reading of it gives one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        oddities.append(("time-not-a-time", f"time_ms is {_type_name(value)}"))
        return None
    if isinstance(value, str):
        oddities.append(("time-not-integer", "time_ms is a string"))
        try:
            value = float(value) if len(value) <= MAX_NUMBER_LENGTH else math.nan
        except ValueError:
            value = math.nan
    elif isinstance(value, float):
        oddities.append(("time-not-integer", "time_ms is a float"))
    number: float = value
    if not 0 <= number <= LATEST_MS:  # false for NaN too
        oddities.append(("time-not-a-time", "time_ms is not a time that a clock could give"))
        return None
    return number


def _seconds(text: str, oddities: list[tuple[str, str]]) -> float | None:
    value = float(text) * 1000 if len(text) <= MAX_NUMBER_LENGTH else math.inf
    if value > LATEST_MS:
        oddities.append(("time-not-a-time", "the time is not one that a clock could give"))
        return None
    return value


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


def plain_record(fields: Any, text: str, end: int, line: int) -> Record | None:
    """The record that `json` made of `text[:end]`, if nothing about it can be odd, else None.

    Duplicate keys are excluded without a hook: every pair has a colon, so where there are as many
    colons as keys, no pair was lost (a colon within a string only costs the careful path).
    """
    if type(fields) is not dict or len(fields) != 6:
        return None
    try:
        namespace, time_ms, event_type, key, value, metadata = _fields_of(fields)
    except KeyError:
        return None
    if (
        type(time_ms) is not int
        or not 0 <= time_ms <= LATEST_MS
        or event_type not in EVENT_TYPES
        or type(key) is not str
        or type(namespace) is not str
        or type(metadata) is not dict
    ):
        return None
    if type(value) is dict:
        if not (_are_plain(value.values()) and _are_plain(metadata.values())):
            return None
        keys = 6 + len(metadata) + len(value)
    elif (value is None or _are_plain((value,))) and _are_plain(metadata.values()):
        keys = 6 + len(metadata)
    else:
        return None
    if text.count(":", 0, end) != keys:
        return None
    # Three times as fast as Record(...), which is a function in Python.
    return _new_record(Record, (line, namespace, time_ms, event_type, key, value, metadata, MLLOG))


_new_record = tuple.__new__


def _are_plain(values: Iterable[Any]) -> bool:
    """Whether all are strings, booleans, null, or finite numbers of an ordinary size."""
    for value in values:
        kind = type(value)
        if kind is str:
            continue
        if kind is int:
            if not -LARGEST_INTEGER < value < LARGEST_INTEGER:
                return False
        elif kind is float:
            if value - value != 0.0:  # NaN or infinite
                return False
        elif kind is not bool and value is not None:
            return False
    return True
