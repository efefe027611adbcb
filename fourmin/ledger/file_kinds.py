"""What the files in a campaign's folder are, by their names."""

from __future__ import annotations

import re

from fourmin.ledger.campaign import (
    CAMPAIGN_FILE,
    CHECKPOINTS_FOLDER,
    EVENTS_FILE,
    LEDGER_FILE,
    PENDING,
    RESULT_FILE,
    SUMMARY_FILE,
)
from fourmin.ledger.chain import MAX_BYTES
from fourmin.ledger.signatures import SIGNED
from fourmin.results.folder import MAX_FILE_BYTES
from fourmin.results.names import MAX_DROPPING_BYTES, TRACE_FILE, is_dropping

UNREAD = ("lock", "unknown", "temporary", "trace")
"""Kinds of files that nothing reads."""
RUN_FOLDER = re.compile(r"run-([1-9][0-9]{0,3})\Z")
KEPT_LOG = re.compile(r"events\.attempt-([1-9][0-9]{0,4})\.log\Z")
MAX_SIGNATURE_BYTES = 16 * 1024
_LOCK = re.compile(r"\.lock(-.*)?\Z")
_TEMPORARY = re.compile(r"\.(.+)\.tmp\Z")


def file_kind(name: str) -> str:
    """What a file is by its name: `plan`, `ledger`, `summary`, `events`, `result`, `signature`,
    `trace`, `kept-log`, `lock`, `pending`, `temporary`, `dropping` or `unknown`.
    """
    folder, _, base = name.rpartition("/")
    if is_dropping(base):
        return "dropping"
    if folder and not RUN_FOLDER.match(folder):
        return "unknown"
    known = (
        {EVENTS_FILE: "events", RESULT_FILE: "result", TRACE_FILE: "trace"}
        if folder
        else {CAMPAIGN_FILE: "plan", LEDGER_FILE: "ledger", SUMMARY_FILE: "summary"}
        | dict.fromkeys(SIGNED, "signature")
    )
    if base in known:
        return known[base]
    if folder and KEPT_LOG.match(base):
        return "kept-log"
    if not folder and _LOCK.match(base):
        return "lock"
    temporary = _TEMPORARY.match(base)
    if temporary and temporary.group(1).removesuffix(PENDING) in known:
        return "temporary"
    if base.endswith(PENDING) and base.removesuffix(PENDING) in known:
        return "pending"
    return "unknown"


def most_bytes(kind: str) -> int:
    """How large a file of a kind may be."""
    small = {"dropping": MAX_DROPPING_BYTES, "signature": MAX_SIGNATURE_BYTES, "ledger": MAX_BYTES}
    return small.get(kind, MAX_FILE_BYTES)


def is_checkpoints(folder: str) -> bool:
    """Whether a folder, relative to the campaign's, is where a run keeps its checkpoints."""
    run, _, name = folder.partition("/")
    return name == CHECKPOINTS_FOLDER and RUN_FOLDER.match(run) is not None
