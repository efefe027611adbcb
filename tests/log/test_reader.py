from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourmin.log.reader import KEPT_PROBLEMS, MAX_RECORD_LENGTH, EventLog, read_log
from fourmin.log.records import PROBLEM_KINDS
from fourmin.log.timeline import Timeline


def line(key: str = "seed", value: object = 1, **fields: object) -> str:
    record = {
        "namespace": "",
        "time_ms": 1_700_000_000_000,
        "event_type": "POINT_IN_TIME",
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 7},
        **fields,
    }
    return ":::MLLOG " + json.dumps(record)


def kinds(log: EventLog) -> list[str]:
    return [problem.kind for problem in log.problems]


def read(text: str | bytes, **options: bool) -> EventLog:
    return read_log(text if isinstance(text, bytes) else text.encode(), **options)


def test_a_clean_record() -> None:
    log = read(line("eval_accuracy", 0.5) + "\n", strict=True)
    assert not log.problems
    (record,) = log.records
    assert record == (1, "", 1_700_000_000_000, "POINT_IN_TIME", "eval_accuracy", 0.5,
                      {"file": "train.py", "lineno": 7}, "MLLOG")  # fmt: skip
    with pytest.raises(AttributeError):
        record.key = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        (line() + "\r\n" + line() + "\r\n", [1, 2], []),
        (line() + "\r" + line() + "\r", [1, 2], []),
        ("a\rb\rnoise\n" + line() + "\n", [2], []),
        ("0: " + line() + "\n[rank1] " + line(), [1, 2], ["text-before-record"] * 2),
        (line() + line() + " " + line() + "\n", [1, 1, 1], ["glued-records"] * 2),
        (line() + " done\n", [1], ["text-after-record"]),
        (line()[:60] + "\n" + line() + "\n", [2], ["truncated-record"]),
        (line()[:60] + line() + "\n", [1], ["truncated-record", "glued-records"]),
        ("\ufeff" + line() + "\n", [1], ["byte-order-mark"]),
        ("\0\0\n" + line() + "\n\0", [2], []),
        ("no token\n", [], ["no-records"]),
        ("", [], ["no-records"]),
        (":::MLLOG hello\n", [], ["malformed-record", "no-records"]),
        (":::MLLOG [1]\n", [], ["malformed-record", "no-records"]),
        (":::MLLOG {'key': 1}\n", [], ["malformed-record", "no-records"]),
        (":::MLLOG{}\n", [1], ["missing-field"]),
        ("see :::MLPerf\n" + line(), [2], []),
        (line(value=':::MLLOG {"key": "fake"}') + "\n", [1], []),
    ],
)
def test_lines_as_people_wrote_them(text: str, lines: list[int], expected: list[str]) -> None:
    log = read(text)
    assert [record.line for record in log.records] == lines
    assert kinds(log) == expected
    assert set(expected) <= PROBLEM_KINDS.keys()


@pytest.mark.parametrize(
    ("raw", "kind", "attribute", "expected"),
    [
        ('"time_ms": 5.5', "time-not-integer", "time_ms", 5.5),
        ('"time_ms": "17"', "time-not-integer", "time_ms", 17),
        ('"time_ms": "soon"', "time-not-a-time", "time_ms", None),
        ('"time_ms": true', "time-not-a-time", "time_ms", None),
        ('"time_ms": -1', "time-not-a-time", "time_ms", None),
        ('"time_ms": 9e300', "time-not-a-time", "time_ms", None),
        ('"time_ms": NaN', "not-finite", "time_ms", None),
        ('"value": NaN', "not-finite", "value", "NaN"),
        ('"value": [-Infinity]', "not-finite", "value", ["-Infinity"]),
        ('"value": 1e999', "not-finite", "value", "1e999"),
        ('"value": {"a": 1e999}', "not-finite", "value", {"a": "1e999"}),
        ('"value": ' + "9" * 70, "number-too-long", "value", "9" * 70),
        ('"value": ' + "9" * 5000, "number-too-long", "value", "9" * 5000),
        ('"value": ' + "9" * 30, "number-too-long", "value", "9" * 30),
        ('"value": 1, "value": 2', "duplicate-key", "value", 2),
        ('"value": {"a": 1, "a": 2}', "duplicate-key", "value", {"a": 2}),
        ('"value": {"a:": 1, "a:": 2}', "duplicate-key", "value", {"a:": 2}),
        ('"metadata": {"lineno": 1, "lineno" :2}', "duplicate-key", "metadata", {"lineno": 2}),
        ('"metadata": null', "wrong-type", "metadata", {}),
        ('"namespace": 0', "wrong-type", "namespace", "0"),
        ('"key": ["seed"]', "wrong-type", "key", ""),
        ('"event_type": "NOW"', "unknown-event-type", "event_type", None),
        ('"event_type": {}', "wrong-type", "event_type", None),
        ('"value": "\\ud800"', "lone-surrogate", "value", "?"),
        ('"extra": 1', "unknown-field", "value", 1),
    ],
)
def test_oddities(raw: str, kind: str, attribute: str, expected: object) -> None:
    name = raw.split(":")[0].strip('" ')
    fields = json.loads(line()[9:])
    fields.pop(name, None)
    text = ":::MLLOG {" + json.dumps(fields)[1:-1] + ", " + raw + "}\n"
    log = read(text)
    assert kind in kinds(log)
    (record,) = log.records
    assert getattr(record, attribute) == expected
    assert log.problem_counts[kind] >= 1


@pytest.mark.parametrize("name", ["namespace", "time_ms", "event_type", "key", "value", "metadata"])
def test_missing_fields(name: str) -> None:
    fields = json.loads(line()[9:])
    del fields[name]
    log = read(":::MLLOG " + json.dumps(fields))
    assert kinds(log) == ["missing-field"]
    assert name in log.problems[0].message
    assert len(log.records) == 1


def test_bytes_that_are_not_utf8_matter_only_in_a_record() -> None:
    good = line().encode()
    assert not read(b"caf\xe9\n" + good + b"\n").problems
    log = read(good.replace(b"train.py", b"caf\xe9.py") + b"\n" + good)
    assert kinds(log) == ["not-utf8"]
    assert log.records[0].metadata["file"] == "caf\ufffd.py"
    assert not read(line(value="日本語").encode()).problems
    utf16 = line().encode("utf-16")
    assert kinds(read(utf16)) == ["no-records"]


def test_bytes_that_are_not_utf8_in_older_dialects() -> None:
    log = read(b":::MLPv0.5.0 res\xe9 1540000000.5 (a\xe9.py:3) opt_name: caf\xe9\n")
    assert set(kinds(log)) == {"not-utf8"}
    (record,) = log.records
    assert (record.key, record.value, record.line) == ("opt_name", "caf\ufffd", 1)
    assert record.metadata == {"benchmark": "res\ufffd", "file": "a\ufffd.py", "lineno": 3}
    log = read(b':::MLL 1550000000.5 seed: {"value": "\xe9", "metadata": {}}\n')
    assert kinds(log) == ["not-utf8"]
    assert log.records[0].value == "\ufffd"


def test_depth_and_length_limits() -> None:
    def nested(depth: int) -> str:
        return line(value="@").replace('"@"', "[" * depth + "]" * depth)

    assert not read(nested(63)).problems
    assert kinds(read(nested(64))) == ["too-deep", "no-records"]
    assert kinds(read(nested(20_000))) == ["too-deep", "no-records"]
    assert not read(line(value="x" * 60_000)).problems
    log = read(line(value="x" * MAX_RECORD_LENGTH) + "\n" + line())
    assert kinds(log) == ["record-too-long"]
    assert log.records[0].line == 2


def test_limits_on_the_file(tmp_path: Path) -> None:
    text = (line() + "\n").encode() * 3
    assert kinds(read_log(text, max_bytes=10)) == ["too-large"]
    log = read_log(text, max_records=2)
    assert kinds(log) == ["too-many-records"]
    assert len(log.records) == 2
    assert not read_log(text, max_records=3).problems
    path = tmp_path / "events.log"
    path.write_bytes(text)
    assert read_log(path) == read_log(text)
    assert kinds(read_log(path, max_bytes=10)) == ["too-large"]
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing", "."):
        log = read_log(tmp_path / name)
        assert kinds(log) == ["unreadable"]
        assert not log.records
    assert kinds(read_log(Path("a\0b"))) == ["unreadable"]


def test_problems_are_kept_in_part_and_counted_in_full() -> None:
    log = read(":::MLLOG {x}\n" * 1000)
    assert log.problem_counts == {"malformed-record": 1000, "no-records": 1}
    assert len(log.problems) == KEPT_PROBLEMS + 1
    assert log.problems[1].line == 2


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{0}\n{0}", 2),
        ("x\n{0}\n", 1),
        ("{0}\n\n{0}\n", 2),
        ("{0}\n{0} \n", 2),
        ("{0}\r\n", 1),
        (" {0}\n", 1),
        ("{0}\n{0}\nend\n", 3),
        ("{0}{0}\n", 1),
        ("{0}\n:::MLLOG {{bad\n{0}\n", 2),
    ],
)
def test_strict_reading_refuses_bytes_outside_of_records(text: str, where: int) -> None:
    text = text.format(line())
    assert "outside-record" not in kinds(read(text))
    problems = [p for p in read(text, strict=True).problems if p.kind == "outside-record"]
    assert problems
    assert problems[0].line == where


V06 = """\
:::MLL 1550000000.5 init_start: {"value": null, "metadata": {"file": "a.py", "lineno": 1}}
0: :::MLL 1550000001.0 run_start: {"value": null, "metadata": {"file": "a.py", "lineno": 2}}
:::MLL 1550000002 eval_accuracy: {"value": 0.5, "metadata": {"epoch_num": 4}}
:::MLL 1550000003.0 run_stop: {"value": null, "metadata": {"status": "success"}}
:::MLL 1550000004.0 seed: 17
:::MLL then what
"""


def test_v06() -> None:
    log = read(V06)
    assert kinds(log) == ["text-before-record", "missing-field", "malformed-record"]
    assert [record.key for record in log.records] == [
        "init_start", "run_start", "eval_accuracy", "run_stop", "seed",
    ]  # fmt: skip
    assert log.records[0].time_ms == 1_550_000_000_500
    assert {record.dialect for record in log.records} == {"MLL"}
    assert log.records[4].value == 17
    timeline = Timeline(log)
    assert timeline.time_to_train_ms == 2000
    assert timeline.status == "success"


V05 = """\
:::MLPv0.5.0 resnet 1540000000.25 (run.sh:3) run_clear_caches
:::MLPv0.5.0 resnet 1540000001.0 (train.py:10) run_start
:::MLPv0.5.0 resnet 1540000001.5 (train.py:11) opt_name: "lars"
:::MLPv0.5.0 resnet 1540000001.5 (train.py:12) input_order: by hand
:::MLPv0.5.0 resnet 1540000001.5 (train.py:12) input_batch_size: 4096
:::MLPv0.5.0 resnet 1540000002.0 (train.py:13) eval_start: 4
:::MLPv0.5.0 resnet 1540000003.0 (train.py:14) eval_accuracy: {"epoch": 4, "value": 0.75}
:::MLPv0.5.0 resnet 1540000003.5 (train.py:15) eval_stop: 4
:::MLPv0.5.0 resnet 1540000004.0 (train.py:16) run_stop: {"success": true}
:::MLPv0.5.0 resnet
"""


def test_v05() -> None:
    log = read(V05)
    assert kinds(log) == ["malformed-record"]
    assert {record.dialect for record in log.records} == {"MLPv0.5.0"}
    assert log.records[1].metadata == {"benchmark": "resnet", "file": "train.py", "lineno": 10}
    assert log.records[3].value == "by hand"
    timeline = Timeline(log)
    assert timeline.count("cache_clear") == 1
    assert timeline.hyperparameters == {"global_batch_size": 4096, "opt_name": "lars"}
    (evaluation,) = timeline.evaluations
    assert (evaluation.epoch, evaluation.accuracy) == (4, 0.75)
    assert evaluation.start_ms == 1_540_000_002_000
    assert evaluation.stop_ms == 1_540_000_003_500
    assert timeline.status == "success"
    assert timeline.time_to_train_ms == 3000


def check(log: EventLog) -> None:
    """What holds for every log."""
    assert {problem.kind for problem in log.problems} <= PROBLEM_KINDS.keys()
    assert set(log.problem_counts) == set(kinds(log))
    assert [record.line for record in log.records] == sorted(r.line for r in log.records)
    for record in log.records:
        json.dumps([record.value, record.metadata], allow_nan=False, ensure_ascii=False).encode()
        assert record.time_ms is None or 0 <= record.time_ms < 2**53
    timeline = Timeline(log)
    _ = timeline.time_to_train_ms, timeline.status, timeline.hyperparameters
    _ = timeline.clock_samples, timeline.backward_steps, timeline.restarts
    timeline.first_reaching(0.5)


REALISTIC = "\n".join(
    [
        "starting",
        line("init_start", None, event_type="INTERVAL_START"),
        line("global_batch_size", 4096),
        line("run_start", None),
        line("eval_start", None, metadata={"epoch_num": 4}),
        line("eval_accuracy", 0.76, metadata={"epoch_num": 4.0, "samples_count": 50_000}),
        line("tracked_stats", {"a": [1.5, {"b": "\\ud83d:::MLLOG {"}]}),
        line("run_stop", {"success": True}),
        V06 + V05,
    ]
).encode()
fragments = st.sampled_from(
    [b":::MLLOG ", b":::MLL ", b":::MLPv0.5.0 ", b"{", b"}", b"[", b'"', b"\\", b"\n", b"\r", b"\0",
     b"\xe9", b"NaN", b"1e999", b"\\ud800", b" ", b":", b",", b'"key"', b"-", b"9" * 30]
)  # fmt: skip


@given(st.binary(max_size=300) | st.lists(fragments, max_size=40).map(b"".join), st.booleans())
@settings(max_examples=400)
def test_any_bytes(data: bytes, strict: bool) -> None:
    check(read_log(data, strict=strict))


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(REALISTIC)), st.integers(0, 30), fragments | st.binary(max_size=4)
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
@settings(max_examples=400)
def test_mutated_logs(edits: list[tuple[int, int, bytes]], strict: bool) -> None:
    data = REALISTIC
    for start, length, replacement in edits:
        data = data[:start] + replacement + data[start + length :]
    check(read_log(data, strict=strict))
