"""SUB: an event log holds nothing but what its writer says and a rule can read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from fourmin.ledger.file_kinds import file_kind
from fourmin.ledger.view import CampaignView
from fourmin.log import keys
from fourmin.log.reader import MAX_RECORD_LENGTH, EventLog, read_log
from fourmin.log.records import FIELDS, Record
from fourmin.rules.compare import short
from fourmin.rules.rule import CAMPAIGN, ERROR, Problem, rule

_METADATA = {
    keys.FILE, keys.LINENO, keys.MONOTONIC_MS, keys.EPOCH_NUM, keys.SAMPLES_COUNT, keys.STATUS,
    keys.BOOT, "correct_count", "files", "bytes",
}  # fmt: skip
_CUT_OFF = ("truncated-record", "malformed-record", "outside-record", "no-records")


@rule("SUB011", "hidden-bytes", ERROR, CAMPAIGN)
def hidden_bytes(campaign: CampaignView) -> Iterator[Problem]:
    """An event log has the bytes of its records and no others.

    What it checks
        Each record is spaced and spelled as fourmin writes it, with metadata that it knows; no
        line is longer than a record can be; and the log of an attempt that never started, which
        is kept beside, is an event log too, but for the line that a kill cut off.
    Why it is bad
        What is hidden between the records, nobody has checked.
    Example
        20 MB of blanks within a record, or a log of an earlier attempt that is something else.
    How to put it right
        Restore the log from where the run was made.
    """
    for run in campaign.runs:
        if run.events is not None and run.log is not None:
            yield from _of(run.log_name, run.events, run.log)
    for name, data in campaign.files.items():
        if data is not None and file_kind(name) == "kept-log":
            log = read_log(data, strict=True)
            yield from _of(name, data, log)
            last = data.count(b"\n") + 1
            for problem in log.problems:
                if problem.kind not in _CUT_OFF or problem.line != last:
                    yield Problem(problem.message, problem.line, path=name)


def _of(path: str, data: bytes, log: EventLog) -> Iterator[Problem]:
    """What stands in a log beside its records; the first line of each kind."""
    lines = dict(enumerate(data.split(b"\n"), start=1))
    too_long = (
        (number, f"a line of {len(line):,} bytes, more than a record has")
        for number, line in lines.items()
        if len(line) > MAX_RECORD_LENGTH
    )
    respelled = (
        (record.line, "a record that is not spaced or spelled as it was written")
        for record in log.records
        if lines.get(record.line) != _as_written(record)
    )
    unknown = (
        (record.line, f"{record.key} has unknown metadata {short(min(names))}")
        for record in log.records
        if (names := set(record.metadata) - _METADATA)
    )
    for found in (too_long, respelled, unknown):
        for number, message in islice(found, 1):
            yield Problem(message, number, path=path)


def _as_written(record: Record) -> bytes:
    """The line that the writer makes of a record."""
    return b":::MLLOG " + json.dumps({name: getattr(record, name) for name in FIELDS}).encode()
