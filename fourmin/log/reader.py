"""Reads event logs as people wrote them: never an exception, in time linear in the bytes."""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from json.scanner import make_scanner
from pathlib import Path

from fourmin.base.kinds import LOOKED_AT, kind_of
from fourmin.log.records import (
    PROBLEM_KINDS,
    LogProblem,
    Parsed,
    ParseError,
    Record,
    parse_mll,
    parse_mllog,
    parse_mlp,
    plain_record,
    syntax_error,
)

__all__ = ["PROBLEM_KINDS", "EventLog", "LogProblem", "Record", "read_log"]

MAX_BYTES = 32 * 1024 * 1024
MAX_RECORDS = 500_000
MAX_RECORD_LENGTH = 64 * 1024
KEPT_PROBLEMS = 100
"""How many problems of each kind are kept; all are counted."""

_TOKEN = ":::ML"
_MLLOG_HEAD = ":::MLLOG {"
_HEAD = re.compile(r":::(?:(MLLOG)[ \t]*(?=\{)|(MLL)[ \t]+|(MLPv0\.[0-9.]+)[ \t]+)")
_LOOKS_LIKE_HEAD = re.compile(r":::(?:MLLOG|MLL|MLPv0\.[0-9.]+)(?![A-Za-z0-9_])")
_Parser = Callable[[str, int], Parsed]
_PARSERS: dict[int, _Parser] = {1: parse_mllog, 2: parse_mll, 3: parse_mlp}
# What JSONDecoder.raw_decode calls, without its wrapper.
_scan_once = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class EventLog:
    """The records of a log in file order, and what is wrong with it.

    `problems` holds at most `KEPT_PROBLEMS` of each kind, in the order in which they were found;
    `problem_counts` counts them all. `size` is in bytes, `strict` says how the log was read.
    """

    records: tuple[Record, ...]
    problems: tuple[LogProblem, ...]
    problem_counts: dict[str, int]
    size: int
    strict: bool
    other: str = ""
    """What the file is where it holds no record, as far as that can be told."""


def read_log(
    source: bytes | Path,
    *,
    strict: bool = False,
    max_bytes: int = MAX_BYTES,
    max_records: int = MAX_RECORDS,
) -> EventLog:
    """Every record in `source`, in any of MLPerf's dialects, and a problem for all that is odd.

    Nothing in the bytes or about the file raises an exception. A line is what `grep -n` counts
    (in a file without any line feed, what ends in a carriage return). With `strict`, as for
    this project's own logs, every byte that is not part of a line `:::MLLOG {json}` with its
    line feed is a problem of kind `outside-record`.
    """
    if isinstance(source, bytes):
        data = source
    else:
        try:
            data = _read_file(source, max_bytes)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return without_records(
                LogProblem("unreadable", 1, reason or "cannot be read"), 0, strict
            )
    if len(data) > max_bytes:
        problem = LogProblem("too-large", 1, f"more than {max_bytes} bytes")
        return without_records(problem, len(data), strict)
    return _Reader(data, strict, max_records).read()


def _read_file(path: Path, max_bytes: int) -> bytes:
    """At most one byte more than `max_bytes`; never waits for a pipe or a device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a regular file")
        return file.read(max_bytes + 1)


def without_records(problem: LogProblem, size: int = 0, strict: bool = False) -> EventLog:
    """The log of a file of so many bytes that holds nothing to read."""
    return EventLog((), (problem,), {problem.kind: 1}, size, strict)


class _Reader:
    """One pass over one log."""

    def __init__(self, data: bytes, strict: bool, max_records: int) -> None:
        self.size = len(data)
        self.head = data[:LOOKED_AT]
        try:
            self.text = data.decode("utf-8")
            self.escaped = False
        except UnicodeDecodeError:
            self.text = data.decode("utf-8", "surrogateescape")
            self.escaped = True
        # Only a record with a backslash can hide a lone surrogate from the fast path.
        self.backslashes = "\\" in self.text
        self.strict = strict
        self.max_records = max_records
        self.records: list[Record] = []
        self.problems: list[LogProblem] = []
        self.counts: Counter[str] = Counter()
        # Characters that may still be looked at twice, for records that hold a token in a
        # string; with it spent, such records count as malformed and the time stays linear.
        self.second_looks = 8 * len(self.text) + MAX_RECORD_LENGTH

    def problem(self, kind: str, line: int, message: str = "") -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= KEPT_PROBLEMS:
            self.problems.append(LogProblem(kind, line, message or PROBLEM_KINDS[kind]))

    def read(self) -> EventLog:
        if self.text.startswith("\ufeff"):
            self.problem("byte-order-mark", 1)
        self.scan()
        other = "" if self.records else kind_of(self.head)
        if not self.records:
            message = PROBLEM_KINDS["no-records"]
            self.problem("no-records", 1, f"{message}: it is {other}" if other else message)
        found = (tuple(self.records), tuple(self.problems), dict(self.counts))
        return EventLog(*found, self.size, self.strict, other)

    def scan(self) -> None:
        text, size = self.text, len(self.text)
        newline = "\n" if "\n" in text else "\r"
        line, counted = 1, 0  # `counted` characters hold line - 1 line ends
        line_feed = carriage_return = line_end = -1
        expected, expected_line = 0, 1  # where a record must begin in strict reading, or -1
        position = text.find(_TOKEN)
        while position >= 0:
            line += text.count(newline, counted, position)
            counted = position
            glued = position < line_end
            if line_feed < position:
                line_feed = text.find("\n", position)
                line_feed = size if line_feed < 0 else line_feed
            if carriage_return < position:
                carriage_return = text.find("\r", position)
                carriage_return = size if carriage_return < 0 else carriage_return
            line_end = line_feed if line_feed < carriage_return else carriage_return
            following = text.find(_TOKEN, position + len(_TOKEN))
            stop = line_end if following < 0 or following > line_end else following

            parsed_end = self.record_at(position, stop, line_end, line)
            if parsed_end >= 0:
                if position and text[position - 1] not in "\n\r\ufeff":
                    self.problem("glued-records" if glued else "text-before-record", line)
                if following >= 0 and parsed_end > following:
                    following = text.find(_TOKEN, parsed_end)
                    stop = line_end if following < 0 or following > line_end else following
                if parsed_end != stop and text[parsed_end:stop].strip():
                    self.problem("text-after-record", line)
                if self.strict and text.startswith(_MLLOG_HEAD, position):
                    if position != expected:
                        self.problem("outside-record", expected_line)
                    ends_line = text.startswith("\n", parsed_end)
                    expected = parsed_end + 1 if ends_line else -1
                    expected_line = line + ends_line
                if len(self.records) >= self.max_records and following >= 0:
                    self.problem("too-many-records", line)
                    return
            position = following
        if self.strict and expected != size:
            self.problem("outside-record", expected_line)

    def record_at(self, position: int, stop: int, line_end: int, line: int) -> int:
        """Reads the record whose token is at `position`; the offset after it, or -1."""
        text = self.text
        if not text.startswith(_MLLOG_HEAD, position):
            head = _HEAD.match(text, position)
            if head is None:
                looks = _LOOKS_LIKE_HEAD.match(text, position)
                if looks is not None:
                    self.problem("malformed-record", line, f"no record after {looks.group()}")
                return -1
            return self.careful(_PARSERS[head.lastindex or 1], head.end(), stop, line_end, line)

        start = position + len(_MLLOG_HEAD) - 1
        segment = text[start : min(stop, start + MAX_RECORD_LENGTH)]
        try:
            fields, end = _scan_once(segment, 0)
        except json.JSONDecodeError as error:
            cause = syntax_error(error, segment)
            return self.second_look(parse_mllog, cause, start, stop, line_end, line)
        except (ValueError, RecursionError, StopIteration):
            pass  # too many digits, too deep or no value: the careful path says which
        else:
            if not (self.backslashes and "\\" in segment) and (
                not self.escaped or segment.isascii()
            ):
                record = plain_record(fields, segment, end, line)
                if record is not None:
                    self.records.append(record)
                    return start + end
        return self.careful(parse_mllog, start, stop, line_end, line)

    def careful(self, parse: _Parser, start: int, stop: int, line_end: int, line: int) -> int:
        """Reads a record that begins at `start` in its dialect and notes all that is odd."""
        segment = self.text[start : min(stop, start + MAX_RECORD_LENGTH)]
        try:
            parsed = parse(segment, line)
        except ParseError as error:
            return self.second_look(parse, error, start, stop, line_end, line)
        return self.accept(parsed, start, line)

    def second_look(
        self, parse: _Parser, error: ParseError, start: int, stop: int, line_end: int, line: int
    ) -> int:
        """Reads beyond the next token, which may stand inside a string of this record.

        `error` is why nothing could be read before that token.
        """
        longer = min(line_end, start + MAX_RECORD_LENGTH)
        if (
            error.kind != "truncated-record"
            or longer == min(stop, start + MAX_RECORD_LENGTH)
            or longer - start > self.second_looks
        ):
            return self.failed(error, start, stop, line)
        self.second_looks -= longer - start
        try:
            parsed = parse(self.text[start:longer], line)
        except ParseError:
            return self.failed(error, start, stop, line)
        return self.accept(parsed, start, line)

    def accept(self, parsed: Parsed, start: int, line: int) -> int:
        """Keeps a record that begins at `start` and notes all that is odd; the offset after it."""
        for kind, message in parsed.oddities:
            self.problem(kind, line, message)
        self.records.append(parsed.record)
        return start + parsed.end

    def failed(self, error: ParseError, start: int, stop: int, line: int) -> int:
        """Notes a record that could not be read."""
        if error.kind == "truncated-record" and stop > start + MAX_RECORD_LENGTH:
            self.problem("record-too-long", line, f"more than {MAX_RECORD_LENGTH} characters")
        else:
            self.problem(error.kind, line, error.message)
        return -1
