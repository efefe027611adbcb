from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from durability import recorded
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.log import keys
from fourmin.log.reader import read_log
from fourmin.log.writer import EventLogWriter, SilentLog

FIELDS = ["namespace", "time_ms", "event_type", "key", "value", "metadata"]
SAFE = 2**53 - 1
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from([':::MLLOG {"key": 1}', "\ufeff", "\\ud800", "a:b", "\r\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def mlperf_lines(text: str) -> list[dict[str, object]]:
    """MLCommons' grammar: a line that starts with the token, the rest of it one JSON text."""
    lines = [line.strip() for line in text.splitlines()]
    return [json.loads(line[9:]) for line in lines if line.startswith(":::MLLOG ")]


@given(
    st.lists(
        st.tuples(
            values,
            st.dictionaries(
                st.from_regex("[a-z]{1,8}", fullmatch=True).filter(
                    lambda name: name not in ("file", "lineno", "namespace")
                ),
                values,
                max_size=3,
            ),
        ),
        max_size=4,
    )
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, events: list[object]) -> None:
    path = tmp_path_factory.mktemp("log") / "events.log"
    with EventLogWriter(path, wall_clock=lambda: 1_700_000_000_123_999_999) as log:
        for value, metadata in events:  # type: ignore[misc]
            log.point("step_loss", value, **metadata)
    data = path.read_bytes()
    read = read_log(data, strict=True)
    assert {problem.kind for problem in read.problems} <= {"no-records"}
    assert len(read.records) == len(events)
    theirs = mlperf_lines(data.decode("ascii"))
    for (value, metadata), record, line in zip(events, read.records, theirs, strict=True):  # type: ignore[misc]
        assert list(line) == FIELDS
        assert line["value"] == record.value == value
        assert record.time_ms == line["time_ms"] == 1_700_000_000_123
        assert (record.namespace, record.key) == ("fourmin", "step_loss")
        assert record.metadata == line["metadata"]
        assert {**record.metadata, **metadata} == record.metadata
        assert list(record.metadata)[:3] == ["file", "lineno", "monotonic_ms"]


def test_event_types_caller_and_clocks(tmp_path: Path) -> None:
    since = [0]
    clocks = {"wall_clock": lambda: 10**18 + since[0], "monotonic": lambda: 5 * 10**9 + since[0]}
    path = tmp_path / "events.log"
    with EventLogWriter(path, **clocks) as log:
        text = log.start(keys.RUN_START)
        since[0] += 10**9
        log.end(keys.RUN_STOP, status=keys.SUCCESS)
        since[0] += 10**9
        log.point(keys.EVAL_ACCURACY, 0.759, epoch_num=4)
    records = read_log(path, strict=True).records
    assert path.read_text().splitlines()[0] == f":::MLLOG {text}"
    assert [record.event_type for record in records] == [
        "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME",
    ]  # fmt: skip
    assert [record.time_ms for record in records] == [10**12, 10**12 + 1000, 10**12 + 2000]
    assert [record.metadata["monotonic_ms"] for record in records] == [5000, 6000, 7000]
    here = [record.metadata["lineno"] for record in records]
    assert here == list(range(here[0], here[0] + 6, 2))  # type: ignore[arg-type]
    assert records[0].metadata["file"] == "test_writer.py"


def test_both_clocks_are_of_one_moment_where_the_machine_lets_them(tmp_path: Path) -> None:
    ms = 10**6
    # 30 ms pass between the two clocks; then nothing does; at last something always does.
    steady = iter([0, 30 * ms, 31 * ms, 31 * ms, *(n * 2 * ms for n in range(20, 30))])
    wall = iter([30 * ms, 31 * ms, *range(100 * ms, 105 * ms, ms)])
    path = tmp_path / "events.log"
    with EventLogWriter(path, wall_clock=wall.__next__, monotonic=steady.__next__) as log:
        log.point("seed", 1)
        log.point("seed", 2)
    read = [(r.time_ms, r.metadata["monotonic_ms"]) for r in read_log(path).records]
    assert read[0] == (31, 31)
    assert read[1] == (104, 56)


def test_the_clocks_are_the_wall_and_one_that_nobody_sets(tmp_path: Path) -> None:
    before = time.time_ns(), time.monotonic_ns()
    with EventLogWriter(tmp_path / "events.log") as log:
        log.point("seed", 1)
    (record,) = read_log(tmp_path / "events.log").records
    for first, told, clock in (
        (before[0], record.time_ms, time.time_ns),
        (before[1], record.metadata["monotonic_ms"], time.monotonic_ns),
    ):
        assert first // 1_000_000 <= told <= clock() // 1_000_000  # type: ignore[operator]


def test_a_log_is_on_the_disk_when_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = recorded(monkeypatch)
    log = EventLogWriter(tmp_path / "events.log")
    assert told == [f"sync {tmp_path.name}/"], "its name"
    log.point("seed", 1)
    size = (tmp_path / "events.log").stat().st_size
    log.sync()
    log.close()
    assert told[1:] == [f"sync events.log {size}"] * 2


def test_the_file_of_a_caller_in_the_package_is_relative(tmp_path: Path) -> None:
    import fourmin

    where = str(Path(fourmin.__file__).parent / "training" / "session.py")
    with EventLogWriter(tmp_path / "events.log") as log:
        exec(compile("log.point('seed', 1)", where, "exec"), {"log": log})
    record = read_log(tmp_path / "events.log").records[0]
    assert record.metadata["file"] == "fourmin/training/session.py"


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        [1, {"a": -float("inf")}],
        2**53,
        {1: 2},
        "\ud800",
        {"\ud800": 1},
        object(),
        b"x",
        {1},
        1j,
    ],
)
def test_refuses_values_that_json_cannot_carry(tmp_path: Path, value: object) -> None:
    with EventLogWriter(tmp_path / "events.log") as log:
        with pytest.raises(ValueError):
            log.point("tracked_stats", value)
        with pytest.raises(ValueError):
            log.point("tracked_stats", None, step=value)
    assert (tmp_path / "events.log").read_bytes() == b""


def test_refuses_bad_keys_reserved_metadata_and_huge_records(tmp_path: Path) -> None:
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    with EventLogWriter(tmp_path / "events.log") as log:
        for key in ("", "a b", "a\n", 'a"', "é"):
            with pytest.raises(ValueError, match="is no key"):
                log.point(key, 1)
        with pytest.raises(ValueError, match="lineno itself"):
            log.point("seed", 1, lineno=3)
        with pytest.raises(ValueError, match="at most"):
            log.point("system", "x" * 100_000)
        with pytest.raises(ValueError, match="nested too deep"):
            log.point("system", deep)
        log.point("system", "x" * 50_000)
    assert not read_log(tmp_path / "events.log", strict=True).problems


def test_a_log_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    EventLogWriter(path).close()
    with pytest.raises(FourminError, match="exists already"):
        EventLogWriter(path)
    with pytest.raises(FourminError, match="cannot be opened"):
        EventLogWriter(tmp_path / "missing" / "events.log")
    with pytest.raises(FourminError, match="cannot be opened"):
        EventLogWriter(tmp_path / "other.log", resume=True)


def test_resume_appends_on_a_fresh_line(tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    with EventLogWriter(path) as log:
        log.point("seed", 1)
    with EventLogWriter(path, resume=True) as log:
        log.point("seed", 2)
        log.close()
    read = read_log(path, strict=True)
    assert [record.value for record in read.records] == [1, 2]
    assert not read.problems
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with EventLogWriter(path, resume=True) as log:
        log.point("seed", 3)
    read = read_log(path, strict=True)
    assert [record.value for record in read.records] == [1, 3]
    assert [problem.kind for problem in read.problems] == ["truncated-record", "outside-record"]


def test_each_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, line: (writes.append(line), real(fd, line))[1])
    with EventLogWriter(tmp_path / "events.log") as log:
        for step in range(3):
            log.point("step_loss", 0.5, step_num=step)
    assert all(re.fullmatch(rb":::MLLOG \{.*\}\n", line) for line in writes)
    assert len(writes) == 3
    monkeypatch.setattr(os, "write", lambda fd, line: len(line) - 1)
    with EventLogWriter(tmp_path / "short.log") as log, pytest.raises(OSError, match="only part"):
        log.point("seed", 1)


def test_a_kill_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    code = (
        "import sys, pathlib; from fourmin.log.writer import EventLogWriter\n"
        "log = EventLogWriter(pathlib.Path(sys.argv[1]))\n"
        "n = 0\n"
        "while True:\n"
        "    log.point('step_loss', 1.5, step_num=n); n += 1\n"
        "    if n == 500: print('ready', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.wait()
    process.stdout.close()
    read = read_log(path, strict=True)
    assert len(read.records) >= 500
    assert not read.problems


def test_a_silent_log_takes_what_a_writer_takes() -> None:
    for name in ("point", "start", "end", "sync"):
        silent = inspect.signature(getattr(SilentLog, name)).parameters
        assert silent == inspect.signature(getattr(EventLogWriter, name)).parameters
