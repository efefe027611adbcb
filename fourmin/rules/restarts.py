"""What a run that was cut off and went on must show: in its log and in the ledger."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from fourmin.base.values import number
from fourmin.ledger.chain import Entry
from fourmin.ledger.history import RunHistory
from fourmin.ledger.view import CampaignView, RunView
from fourmin.log import keys
from fourmin.log.reader import EventLog
from fourmin.log.timeline import Timeline
from fourmin.rules.compare import short
from fourmin.rules.rule import ERROR, NOTE, RUN, Problem, rule


@rule("LOG008", "restart-point", ERROR, RUN)
def restart_point(run: RunView) -> Iterator[Problem]:
    """A restarted run goes on from a checkpoint that it made, or from the start of training.

    What it checks
        Each checkpoint follows the evaluation of its epoch. Each run_restart comes after
        run_start, has a higher number than the one before it, and names epoch 0 or one after
        which the log has a checkpoint that still counts: of an epoch that an earlier restart
        went back behind, nothing does.
    Why it is bad
        A run that goes on from weights of elsewhere skips the training that made them.
    Example
        A restart after epoch 30 in a log that ends in epoch 12.
    How to put it right
        Restore events.log from where the run was made.
    """
    saved: list[int] = []
    started, before, evaluated = False, 0, None
    points = {restart.line: restart for restart in run.restarts}
    for record in run.body:
        started = started or record.key == keys.RUN_START
        epoch = record.metadata.get(keys.EPOCH_NUM)
        if record.key == keys.EVAL_STOP:
            evaluated = epoch
        elif record.key == keys.CHECKPOINT and type(epoch) is int and epoch == evaluated:
            saved.append(epoch)
        elif record.key == keys.CHECKPOINT:
            what = f"a checkpoint after epoch {short(epoch)}, not right after its evaluation"
            yield Problem(what, record.line)
        if record.line not in points:
            continue
        restart = points[record.line]
        if restart.number is None or restart.epoch is None:
            yield Problem("a restart without number and epoch", record.line)
            continue
        if not started:
            yield Problem(f"{keys.RUN_RESTART} before run_start", record.line)
        if restart.number <= before:
            yield Problem(f"restart {restart.number} after {before}", record.line)
        before = restart.number
        while saved and saved[-1] > restart.epoch:
            saved.pop()
        if restart.epoch and (not saved or saved[-1] != restart.epoch):
            yield Problem(
                f"restart {restart.number} after epoch {restart.epoch}, of which there is no "
                "checkpoint",
                record.line,
            )


@rule("LED014", "recorded-restart", ERROR, RUN)
def recorded_restart(
    run: RunView, campaign: CampaignView, history: RunHistory, log: EventLog, events: bytes
) -> Iterator[Problem]:
    """Every restart is in the ledger, and the log before it is as it was then.

    What it checks
        Each run_restart in the log has its run-restart in the ledger, which was written before
        it and gives the length and the SHA-256 of the log up to there. What follows in the log
        begins with that restart, or with a later one where its workers came to nothing.
    Why it is bad
        A log that can be cut or written anew at a restart can lose the time that was lost, or an
        evaluation that came out badly.
    Example
        The run_restart record removed, and the times after it moved forward by an hour.
    How to put it right
        Restore events.log and ledger.jsonl from where the campaign ran.
    """
    recorded = [entry.data.get("restart") for entry in history.restarts]
    numbers = {told for told in recorded if type(told) is int}
    for restart in run.restarts:
        if restart.number not in numbers:
            yield Problem(
                f"no record in the ledger tells of restart {short(restart.number)}", restart.line
            )
    lines = [record.line for record in log.records]
    hashed, at, newlines = hashlib.sha256(), 0, 0
    for entry in history.restarts:
        length = entry.data.get("events_bytes")
        if type(length) is not int or not at <= length <= len(events):
            what = f"a log of {short(length)} bytes at a restart"
            yield Problem(what, entry.line, path="ledger.jsonl")
            return
        hashed.update(events[at:length])
        newlines += events.count(b"\n", at, length)
        at = length
        if hashed.hexdigest() != entry.data.get("events_sha256"):
            told = short(entry.data.get("restart"))
            yield Problem(f"its first {length} bytes are not those of restart {told}")
            return
        torn = length > 0 and events[length - 1 : length] != b"\n"
        following = bisect_right(lines, newlines + torn)
        yield from _begins_with_restart(log, entry, following)


def _begins_with_restart(log: EventLog, entry: Entry, following: int) -> Iterator[Problem]:
    for record in log.records[following : following + 1]:
        if record.key == keys.ABORT:
            continue
        told = record.value.get("restart") if isinstance(record.value, dict) else None
        wanted = number(entry.data.get("restart"))
        reached = number(told)
        if record.key != keys.RUN_RESTART or reached is None or wanted is None or reached < wanted:
            restart = short(entry.data.get("restart"))
            yield Problem(f"{record.key} where restart {restart} should follow", record.line)


@rule("RUN012", "restarted-run", NOTE, RUN)
def restarted_run(run: RunView, timeline: Timeline) -> Iterator[Problem]:
    """The run was cut off and went on.

    What it checks
        The run_restart records in the log, and how much of the run's time was lost: from the end
        of what counts to the restart; by the wall clock alone where the run went on in another
        boot of a machine, or does not say in which.
    Why it is bad
        It is not. The clock ran through, so the result counts what was lost.
    Example
        A worker was killed in epoch 7; the run went on after epoch 6, 11 s later.
    How to put it right
        Nothing needs to be done.
    """
    moved = {b.line for a, b in pairwise(timeline.clock_samples) if a.boot != b.boot}
    for restart in run.restarts:
        if restart.epoch is None or restart.lost_ms is None:
            continue  # restart-point tells
        where = f"after epoch {restart.epoch}" if restart.epoch else "from the start of training"
        by = ", by the wall clock alone" if restart.line in moved else ""
        yield Problem(
            f"restart {short(restart.number)}: it went on {where}, {restart.lost_ms / 1000:.1f} s "
            f"were lost{by}",
            restart.line,
        )
