"""Strict JSON for files that somebody else wrote, canonical JSON and digests.

`loads_strict` accepts a subset of what `json.loads` accepts: one value that means the same to
every reader. `canonical_bytes` writes the one spelling of a value that RFC 8785 defines, over
which the ledger's hashes run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeAlias

import rfc8785

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"
"""A value as `json.loads` returns it."""

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
MAX_NUMBER_LENGTH = 64
MAX_INTEGER = 2**53 - 1
"""Largest magnitude of an integer that every JSON reader gives back unchanged (RFC 8259)."""

KINDS = {
    "too-large": "more bytes than the limit",
    "byte-order-mark": "starts with a byte-order mark",
    "not-utf8": "holds bytes that are not UTF-8",
    "too-deep": "arrays and objects are nested deeper than the limit",
    "number-too-long": "a number has more characters than the limit",
    "number-overflow": "a number is too large for a 64-bit float",
    "nan": "NaN is not JSON",
    "infinity": "Infinity is not JSON",
    "duplicate-key": "an object has one key twice",
    "lone-surrogate": "a string escapes half of a surrogate pair",
    "trailing-bytes": "bytes follow the value",
    "syntax": "not JSON",
}
"""Every kind a `StrictJSONError` can have, with its meaning."""

_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
# The closing quote is optional so that an unclosed string still matches: no backtracking.
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"?'
_STRINGS = re.compile(_STRING, re.DOTALL)
_TOKENS = re.compile(_STRING + rb"|[-+.0-9A-Za-z]+|[\[\]{},]", re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_LONG_NUMBER = re.compile(rb"[-+.0-9eE]{%d}" % (MAX_NUMBER_LENGTH + 1))
_BIG_EXPONENT = re.compile(rb"[eE]\+?[0-9]{3}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class StrictJSONError(ValueError):
    """Why a file is not strict JSON.

    `kind` is one of `KINDS`, `message` a sentence, `line` counts from 1 (None where the whole
    file is meant).
    """

    def __init__(self, kind: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.line = line

    def __str__(self) -> str:
        return self.message if self.line is None else f"line {self.line}: {self.message}"


def loads_strict(data: bytes, *, max_bytes: int = MAX_BYTES) -> JSON:
    """The value in `data`, which must be one JSON text in UTF-8.

    Refused, beyond what the grammar refuses: duplicate keys, NaN and infinities, numbers that
    overflow to one, numbers longer than MAX_NUMBER_LENGTH characters, nesting deeper than
    MAX_DEPTH, a byte-order mark, lone surrogates, anything but whitespace after the value, and
    more than `max_bytes` bytes. Takes time linear in `data`, and never recurses by more than
    MAX_DEPTH.

    Raises `StrictJSONError`, with the first of these that was noticed.
    """
    if len(data) > max_bytes:
        raise StrictJSONError("too-large", f"{len(data)} bytes; the limit is {max_bytes}")
    if data.startswith(_BYTE_ORDER_MARKS):
        raise StrictJSONError("byte-order-mark", KINDS["byte-order-mark"], 1)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise StrictJSONError("not-utf8", message, _line(data, error.start)) from None

    # Without the strings, brackets and numbers can be checked at the speed of bytes methods.
    bare = _STRINGS.sub(b"", data)
    if (
        _too_deep(bare)
        or _LONG_NUMBER.search(bare)
        or _BIG_EXPONENT.search(bare)
        or _SURROGATE.search(data)
    ):
        _check_tokens(data)

    try:
        value: JSON = json.loads(
            text, object_pairs_hook=_unique_object, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        kind = "trailing-bytes" if error.msg == "Extra data" else "syntax"
        message = KINDS[kind] if kind == "trailing-bytes" else f"not JSON: {error.msg}"
        raise StrictJSONError(kind, message, error.lineno) from None
    except _DuplicateKeyError:
        key, line = _first_duplicate(data)
        message = f"the key {json.dumps(key[:80])} occurs twice in one object"
        raise StrictJSONError("duplicate-key", message, line) from None
    except _ConstantError as error:
        kind = "nan" if error.name == "NaN" else "infinity"
        constant = error.name.encode()
        at = next((_line(data, at) for at, token in _tokens(data) if token == constant), None)
        raise StrictJSONError(kind, f"{error.name} is not JSON", at) from None
    return value


def canonical_bytes(value: JSON) -> bytes:
    """`value` in canonical JSON (RFC 8785), UTF-8 without a line end.

    Raises ValueError for what has no canonical form: NaN, infinities, integers beyond 2^53 - 1,
    lone surrogates, keys that are not strings, other types, and nesting too deep to write.
    """
    try:
        return rfc8785.dumps(value)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no canonical JSON: {error}") from None


def sha256_hex(data: bytes) -> str:
    """SHA-256 of raw bytes, 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


class _DuplicateKeyError(Exception):
    pass


class _ConstantError(Exception):
    def __init__(self, name: str) -> None:
        self.name = name


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _DuplicateKeyError
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise _ConstantError(name)


def _line(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _too_deep(bare: bytes) -> bool:
    depth = 0
    for byte in bare.translate(None, _NOT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def _tokens(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Strings, words, numbers, brackets and commas with their offsets; for error messages."""
    for match in _TOKENS.finditer(data):
        yield match.start(), match.group()


def _check_tokens(data: bytes) -> None:
    """Raise StrictJSONError for the first token that is refused though it is JSON."""
    depth = 0
    for offset, token in _tokens(data):
        kind = message = ""
        if token in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                kind, message = "too-deep", f"nested more than {MAX_DEPTH} deep"
        elif token in b"]}":
            depth -= 1
        elif token[:1] in b"-+.0123456789" and len(token) > MAX_NUMBER_LENGTH:
            kind = "number-too-long"
            message = f"a number of {len(token)} characters; the limit is {MAX_NUMBER_LENGTH}"
        elif token[:1] in b"-0123456789" and _overflows(token):
            kind = "number-overflow"
            message = f"{token[:40].decode()} is too large for a 64-bit float"
        elif token[:1] == b'"' and _SURROGATE.search(token) and _is_lone(token):
            kind, message = "lone-surrogate", KINDS["lone-surrogate"]
        if kind:
            raise StrictJSONError(kind, message, _line(data, offset))


def _overflows(token: bytes) -> bool:
    try:
        infinite = abs(float(token)) == float("inf")
    except ValueError:
        return False  # not a number: the parser says so
    return infinite and not token.endswith((b"inf", b"Infinity"))


def _is_lone(token: bytes) -> bool:
    try:
        json.loads(token).encode("utf-8")
    except UnicodeEncodeError:
        return True
    except ValueError:
        pass  # not a string: the parser says so
    return False


def _first_duplicate(data: bytes) -> tuple[str, int | None]:
    """The first key that its object already holds, and its line."""
    open_objects: list[set[str] | None] = []  # None for an array
    expects_key = False
    for offset, token in _tokens(data):
        if token in b"[{":
            open_objects.append(set() if token == b"{" else None)
            expects_key = token == b"{"
        elif token in b"]}":
            open_objects.pop()
            expects_key = False
        elif token == b",":
            expects_key = bool(open_objects) and open_objects[-1] is not None
        elif expects_key and open_objects and (keys := open_objects[-1]) is not None:
            key: str = json.loads(token)
            if key in keys:
                return key, _line(data, offset)
            keys.add(key)
            expects_key = False
    return "", None
