"""CLK: the clock starts when it should, runs on, and tells one time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from operator import itemgetter

from fourmin.base.values import number
from fourmin.ledger.chain import Entry
from fourmin.ledger.history import RunHistory
from fourmin.ledger.view import CampaignView, RunView
from fourmin.log import keys
from fourmin.log.clocks import ClockSample, longest_ms
from fourmin.log.records import Record
from fourmin.log.timeline import Timeline
from fourmin.rules.rule import CAMPAIGN, ERROR, RUN, WARNING, Problem, rule, unchecked

APART_MS = 3_600_000
"""Between the clocks of different machines."""
LARGEST_GAP_MS = 1000
"""From init_stop to run_start: a barrier and one write."""
PARTED_MS = 1000
NOTICED_MS = 20
DRIFT_SHARE = 0.001
"""Wall and monotonic clock may part by this share of the time, and by so many ms where those are
more. NTP slews by half of that share, which reaches 20 ms only after 40 s."""
GO_MS = 10_000
"""From the ledger's run-start to init_stop: an answer to rank 0 and a barrier."""
SKEW_MS = 2000
SKEW_BETWEEN_NODES_MS = 60_000
"""Between the clocks that write the ledger and the log: one machine's, or two machines'."""
LONGER_MS = 20
SHORTER_MS = 500
APART_BETWEEN_NODES_MS = 2000
"""By so much a run may be longer or shorter by its log than by its ledger: rank 0 hears that it may
start after the ledger has it, and the command hears that it has stopped."""
INIT_MINUTES = {"closed": 30, "open": 240}
"""MLPerf's limits on what comes before the clock."""
THROUGHPUT_SLACK_MS = 20


@rule("CLK001", "time-backwards", ERROR, RUN)
def time_backwards(run: RunView, timeline: Timeline) -> Iterator[Problem]:
    """The log's times never run backwards.

    What it checks
        time_ms of each record against the record before.
    Why it is bad
        One process writes the log, a record at a time. A time before its predecessor's was set
        back, on the machine or in the file.
    Example
        eval_accuracy 40 seconds before the epoch_stop above it.
    How to put it right
        Restore events.log; if it is as it was written, the machine's clock was set during the
        run. Run the campaign on a machine whose clock is left alone.
    """
    for step in timeline.backward_steps:
        yield Problem(f"{step.key} {step.by_ms:g} ms before the record above it", step.line)


@rule("CLK002", "clocks-agree", ERROR, RUN)
def clocks_agree(run: RunView, timeline: Timeline) -> Iterator[Problem]:
    """Wall clock and monotonic clock tell the same time all through the run.

    What it checks
        Every record carries both. From the first record on, and again from run_start, they advance
        together: they never differ by more than a second and more than a thousandth of the time.
        The monotonic clock never runs backwards. A run that was restarted on another machine, or
        after a boot, has another monotonic clock from there on.
    Why it is bad
        Whoever sets the wall clock back in the middle of a run shortens it. The time to train is
        that of the longer clock, so less than this does not help.
    Example
        Two hours by the monotonic clock, one hour by time_ms.
    How to put it right
        Run the campaign on a machine whose clock is left alone and that is not suspended.
    """
    read = {sample.line for sample in timeline.clock_samples}
    for record in run.body:
        if record.line not in read:
            yield Problem(f"{record.key} without monotonic_ms", record.line)
            return
    for first, before, sample in _compared(run, timeline):
        if sample.monotonic_ms < before.monotonic_ms:
            yield Problem("the monotonic clock runs backwards", sample.line)
            return
        if _apart_ms(first, sample, PARTED_MS):
            yield _told(run, first, sample)
            return


@rule("CLK010", "clocks-part", WARNING, RUN)
def clocks_part(run: RunView, timeline: Timeline) -> Iterator[Problem]:
    """Wall clock and monotonic clock part by more than clocks do that are left alone.

    What it checks
        As clocks-agree, for more than 20 ms and more than a thousandth of the time, but less than
        what is an error. NTP slews a clock by at most half a thousandth, however long the run.
    Why it is bad
        One of the clocks was set during the run. The result is the longer time.
    Example
        NTP set the clock back by 0.3 s: 60.0 s by the monotonic clock, 59.7 s by time_ms.
    How to put it right
        Nothing has to be done. Let the clock settle before the next campaign.
    """
    parted = [
        (apart, first, sample)
        for first, _, sample in _compared(run, timeline)
        if (apart := _apart_ms(first, sample, NOTICED_MS))
    ]
    if parted and not any(_apart_ms(first, sample, PARTED_MS) for _, first, sample in parted):
        yield _told(run, *max(parted, key=itemgetter(0))[1:])


def _compared(
    run: RunView, timeline: Timeline
) -> Iterator[tuple[ClockSample, ClockSample, ClockSample]]:
    """Each sample that the run wrote, after the one it is compared with and the one before it."""
    start = timeline.first(keys.RUN_START)
    bounds: dict[str, tuple[ClockSample, ClockSample]] = {}
    for sample in timeline.clock_samples:
        if run.aborted_at is not None and sample.line >= run.aborted_at:
            return
        first, before = bounds.get(sample.boot, (sample, sample))
        yield first, before, sample
        begins = start is not None and sample.line == start.line
        bounds[sample.boot] = sample if begins else first, sample


def _advanced(first: ClockSample, sample: ClockSample) -> tuple[float, float]:
    """How far wall and monotonic clock have come."""
    return sample.time_ms - first.time_ms, sample.monotonic_ms - first.monotonic_ms


def _apart_ms(first: ClockSample, sample: ClockSample, most_ms: float) -> float:
    """By how much the clocks have parted since `first`; 0 where it is no more than they may."""
    wall, monotonic = _advanced(first, sample)
    apart = abs(wall - monotonic)
    return apart if apart > max(most_ms, DRIFT_SHARE * max(wall, monotonic)) else 0


def _told(run: RunView, first: ClockSample, sample: ClockSample) -> Problem:
    wall, monotonic = _advanced(first, sample)
    return Problem(
        f"{wall:g} ms by time_ms since line {first.line}, {monotonic:g} ms by the monotonic clock",
        sample.line,
    )


@rule("CLK003", "gap-before-start", ERROR, RUN)
def gap_before_start(
    run: RunView, timeline: Timeline, init_stop_ms: float, run_start_ms: float
) -> Iterator[Problem]:
    """Nothing happens between init_stop and run_start.

    What it checks
        run_start follows init_stop within a second.
    Why it is bad
        Whatever is done in between, reading the dataset for one, is in neither time.
    Example
        Ten minutes between init_stop and run_start (MLPerf's tools let it pass).
    How to put it right
        Do everything that does not touch an image before init_stop, and all else after run_start.
        The manifest (names, labels, sizes and digests) may be read before; bytes of images never.
    """
    gap = run_start_ms - init_stop_ms
    start = timeline.first(keys.RUN_START)
    if gap > LARGEST_GAP_MS:
        line = None if start is None else start.line
        yield Problem(f"run_start {gap:g} ms after init_stop", line)


@rule("CLK004", "ledger-and-log-times", ERROR, RUN)
def ledger_and_log_times(
    run: RunView, history: RunHistory, timeline: Timeline
) -> Iterator[Problem]:
    """The ledger's records fall where the log's events say they must.

    What it checks
        The intent comes before the log's first record, run-start shortly before init_stop, each
        run-restart between the records before it and its own, run-result after the log's last
        record; within two seconds on one node, a minute on several.
    Why it is bad
        A log that was made before its intent is an attempt that was picked afterwards.
    Example
        The log begins a day before the ledger's run-intent.
    How to put it right
        Let `fourmin run` write both. On several nodes, keep the clocks synchronized.
    """
    times = [record.time_ms for record in timeline.log.records if record.time_ms is not None]
    if not times or not history.intents:
        return  # strict-log or ledger-order tells
    nodes = 1 if run.configuration is None else run.configuration.nodes
    skew = SKEW_MS if nodes == 1 else SKEW_BETWEEN_NODES_MS
    intent, start, result = history.intents[-1], history.start, history.result
    if times[0] < intent.time_ms - skew:
        late = intent.time_ms - times[0]
        yield Problem(f"the log begins {late:g} ms before the ledger's intent", 1)
    init_stop = timeline.init_stop_ms
    if init_stop is not None and start is None:
        yield Problem("the clock started, but the ledger has no run-start")
    elif init_stop is not None and start is not None and start.time_ms > init_stop + skew:
        yield Problem(f"init_stop {start.time_ms - init_stop:g} ms before the ledger's run-start")
    elif init_stop is not None and start is not None and init_stop > start.time_ms + skew + GO_MS:
        yield Problem(f"init_stop {init_stop - start.time_ms:g} ms after the ledger's run-start")
    yield from _restart_times(run, history, skew)
    if result is not None and result.time_ms < times[-1] - skew:
        yield Problem(
            f"the log ends {times[-1] - result.time_ms:g} ms after the ledger's run-result"
        )


def _restart_times(run: RunView, history: RunHistory, skew: float) -> Iterator[Problem]:
    """Whether the ledger's restarts lie between what was logged before and after them."""
    recorded = {
        told: entry.time_ms
        for entry in history.restarts
        if type(told := entry.data.get("restart")) is int
    }
    points = {
        restart.line: recorded.get(restart.number)
        for restart in run.restarts
        if restart.number is not None
    }
    before: float | None = None
    for record in run.body:
        told = points.get(record.line)
        if told is not None and record.time_ms is not None:
            if record.time_ms < told - skew:
                yield Problem(
                    f"{told - record.time_ms:g} ms before its run-restart in the ledger",
                    record.line,
                )
            if before is not None and before > told + skew:
                yield Problem(
                    f"the record before it {before - told:g} ms after its run-restart in the "
                    "ledger",
                    record.line,
                )
        before = record.time_ms if record.time_ms is not None else before


@rule("CLK005", "long-initialization", ERROR, RUN)
def long_initialization(
    run: RunView, init_start_ms: float, init_stop_ms: float
) -> Iterator[Problem]:
    """Initialization ends within its limit.

    What it checks
        init_stop within 30 minutes of init_start (open division: 240), as MLPerf asks.
    Why it is bad
        What is not counted must be short, or work moves there.
    Example
        Compiling for an hour before the clock starts.
    How to put it right
        Shorten what happens before init_stop, or let it happen after run_start.
    """
    minutes = (init_stop_ms - init_start_ms) / 60_000
    limit = INIT_MINUTES["open" if run.facts.division == "open" else "closed"]
    if minutes > limit:
        yield Problem(f"initialization took {minutes:.1f} minutes, limit {limit}")


@rule("CLK006", "epoch-clock", ERROR, RUN)
def epoch_clock(run: RunView, timeline: Timeline) -> Iterator[Problem]:
    """No epoch is shorter by its events than by its own measurement.

    What it checks
        epoch_stop minus epoch_start, by the clock that says more, against the images of the epoch
        over the throughput that the run measured with another clock (tracked_stats).
    Why it is bad
        Times that were shortened afterwards no longer fit what was measured at the time.
    Example
        1,408 images in 100 ms by the events, at 5,000 images/s by the measurement.
    How to put it right
        Restore events.log from where the run was made.
    """
    images: dict[float | None, float | None] = {}
    started: dict[float | None, Record] = {}
    milliseconds: dict[float | None, float] = {}
    samples = {sample.line: sample for sample in timeline.clock_samples}
    for record in run.body:  # also epochs that a restart trained again: their time counts
        epoch = number(record.metadata.get(keys.EPOCH_NUM))
        if record.key == keys.EPOCH_START:
            started[epoch] = record
        elif record.key == keys.EPOCH_STOP:
            images[epoch] = number(record.metadata.get(keys.SAMPLES_COUNT))
            begun = started.get(epoch)
            ends = [samples[one.line] for one in (begun, record) if one and one.line in samples]
            if len(ends) == 2:  # clocks-agree tells where a clock is missing
                milliseconds[epoch] = longest_ms(ends)
        if record.key != keys.TRACKED_STATS:
            continue
        stats = record.value if isinstance(record.value, dict) else {}
        throughput, count = number(stats.get("throughput")), images.get(epoch)
        if throughput is None or throughput <= 0:
            yield Problem("no throughput was measured", record.line)
        elif count is not None and epoch is not None and epoch in milliseconds:
            measured = count / throughput * 1000
            slack = THROUGHPUT_SLACK_MS + DRIFT_SHARE * measured
            if measured > milliseconds[epoch] + slack:
                yield Problem(
                    f"epoch {epoch:g} took {milliseconds[epoch]:g} ms by its events, "
                    f"{measured:.0f} ms by its throughput",
                    record.line,
                )


@rule("CLK007", "time-by-ledger", ERROR, RUN)
def time_by_ledger(
    run: RunView, history: RunHistory, timeline: Timeline, run_start_ms: float
) -> Iterator[Problem]:
    """A run takes as long by its log as by the ledger.

    What it checks
        From run_start to run_stop in the log against the time from the ledger's run-start to
        `run_stop_ms` in its run-result, when the command heard from rank 0 that the clock had
        stopped. On one node the log's time is at most 20 ms longer and 0.5 s shorter, on several
        at most 2 s either. A run that was aborted has no such moment; without it in one that
        ended of itself, because another command went on with the campaign, the run is unchecked.
    Why it is bad
        The command's clock is not the log's: a log that was shortened no longer fits its ledger.
    Example
        12 s by the log, 24 s by the ledger.
    How to put it right
        Restore events.log and ledger.jsonl from where the campaign ran.
    """
    start, result, stop = history.start, history.result, timeline.run_stop_ms
    if start is None or result is None or stop is None:
        return  # ledger-order or event-counts tells, where the run has ended
    heard = number(result.data.get("run_stop_ms"))
    if heard is None:
        if run.whole:
            yield unchecked("no command heard the run's clock stop")
        return
    shorter = (heard - start.time_ms) - (stop - run_start_ms)
    one = run.configuration is None or run.configuration.nodes == 1
    most = SHORTER_MS if one else APART_BETWEEN_NODES_MS
    least = -(LONGER_MS if one else APART_BETWEEN_NODES_MS)
    if not least <= shorter <= most:
        yield Problem(
            f"{stop - run_start_ms:g} ms by the log, {heard - start.time_ms:g} by the ledger"
        )
    if run.aborted_at is not None:
        yield Problem("the ledger heard the clock of an aborted run stop")
    if heard > result.time_ms:
        yield Problem(f"run_stop_ms {heard - result.time_ms:g} ms after its record")


@rule("CLK008", "future-time", ERROR, CAMPAIGN)
def future_time(campaign: CampaignView) -> Iterator[Problem]:
    """Nothing happened in the future.

    What it checks
        The times in the ledger and in the logs against this machine's clock, with an hour between
        the clocks of different machines. (That nothing is older than its plan follows from
        ledger-times and ledger-and-log-times.)
    Why it is bad
        What has not happened yet was made up.
    Example
        A run-result of next month.
    How to put it right
        Set this machine's clock if it is wrong. Otherwise run the campaign on a machine whose
        clock is right.
    """
    latest = time.time_ns() // 1_000_000 + APART_MS
    told: list[tuple[str, Entry | Record]]
    told = [("ledger.jsonl", entry) for entry in campaign.entries]
    for run in campaign.runs:
        told += [(run.log_name, record) for record in (run.log.records if run.log else ())]
    for path, one in told:
        if one.time_ms is not None and one.time_ms > latest:
            hours = (one.time_ms - latest + APART_MS) / 3_600_000
            yield Problem(f"{hours:.1f} hours from now", one.line, path=path)
            return
