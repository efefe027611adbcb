"""Inputs that break readers: mutations of real-looking files, and folders full of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from foreign_factory import mlperf_records, text_of

from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline
from fourmin.results.importers.dawnbench import read_table
from fourmin.results.importers.model import MLPERF, ForeignRun, ForeignSet

TABLE = b"epoch\thours\ttop1Accuracy\ttop5Accuracy\n" + b"".join(
    b"%d\t%f\t%f\t%f\n" % (i, i / 7, 60 + i, 85 + i) for i in range(1, 12)
)
ROUNDS = ("v0.5", "v0.6", "v0.7", "v1.1", "v4.0")
SPLICES = (
    b":::MLLOG ", b":::MLL ", b":::MLPv0.5.0 resnet ", b"{", b"}", b"[", b'"', b"\\", b"\n", b"\r",
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"NaN", b"1e999", b"-1", b"null", b"true", b"9" * 40,
    b'"\\ud800"', b"0.759", b'"success"', b'{"a": {"a": {}}}', b"[" * 200, b":", b"\t", b" ",
)  # fmt: skip


def seeds() -> list[bytes]:
    """Short logs of every dialect, and a table."""
    logs = [
        text_of(name, mlperf_records(name, epochs=8, offset=4)).encode()
        for name in ROUNDS
        if name != "v1.1"
    ]
    return [*logs, TABLE]


def mutate(data: bytes, generator: random.Random) -> bytes:
    """Up to six changes: bytes, splices, cuts, repeats, swapped lines and values."""
    content = bytearray(data)
    for _ in range(generator.randint(1, 6)):
        place = generator.randrange(len(content) + 1)
        length = generator.choice((1, 2, 10, 100, 1000))
        action = generator.randrange(7)
        if action == 0:
            content[place : place + 1] = bytes([generator.randrange(256)])
        elif action == 1:
            content[place:place] = generator.choice(SPLICES)
        elif action == 2:
            del content[place : place + length]
        elif action == 3:
            content[place:place] = content[place : place + length]
        elif action == 4:
            lines = content.split(b"\n")
            first, second = (generator.randrange(len(lines)) for _ in "ab")
            lines[first], lines[second] = lines[second], lines[first]
            content = bytearray(b"\n".join(lines))
        elif action == 5:
            _replace_value(content, place, generator)
        else:
            del content[place:]
    return bytes(content)


def _replace_value(content: bytearray, place: int, generator: random.Random) -> None:
    """Another value where one stands: after the next colon, up to a comma or brace."""
    start = content.find(b": ", place)
    if start < 0:
        return
    ends = [end for end in (content.find(b",", start), content.find(b"}", start)) if end > 0]
    if ends:
        content[start + 2 : min(ends)] = generator.choice(SPLICES)


def read_everything(data: bytes, judge: Callable[[ForeignSet], object]) -> None:
    """One input through every reader and, as a run of its own set, through every rule."""
    log = read_log(data)
    read_log(data, strict=True)
    Timeline(log)
    run = ForeignRun(MLPERF, "result_0.txt", log)
    found = ForeignSet(MLPERF, "resnet", "resnet", runs=(run,), system="x", described=True)
    judge(found)
    read_table(data)


def write_hostile_tree(root: Path, generator: random.Random, files: list[bytes]) -> None:
    """A folder that looks like campaigns, packages and entries, with mutated content."""
    places = [
        "campaign/campaign.json", "campaign/ledger.jsonl", "campaign/summary.json",
        "campaign/run-1/events.log", "campaign/run-1/result.json", "campaign/run-2/events.log",
        "v4.0/ACME/results/x/resnet/result_0.txt", "v4.0/ACME/results/x/resnet/result_1.txt",
        "v4.0/ACME/results/x/resnet/scaling.json", "v4.0/ACME/systems/x.json",
        "v4.0/ACME/results/x/bert/result_0.txt", "logs/a.log", "logs/b.log", "lone/one.txt",
        "dawn/entry.json", "dawn/entry.tsv", "who/box/system.json",
        "who/box/digits/campaign/campaign.json", "run-3/events.log", "run-3/result.json",
    ]  # fmt: skip
    for place in generator.sample(places, generator.randint(1, len(places))):
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = generator.randrange(12)
        if kind == 0:
            path.mkdir()
        elif kind == 1:
            path.symlink_to(generator.choice(("/etc/passwd", "..", "nowhere", path.name)))
        elif kind == 2:
            path.write_bytes(b"")
        else:
            path.write_bytes(mutate(generator.choice(files), generator))
