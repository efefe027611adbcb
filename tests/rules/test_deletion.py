"""What is taken away from an honest campaign is missed, or is listed here with the reason.

Everything that depends on the rest is made again, as a forger would: system digest, results,
summary, hashes and chain.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign
from finished_runs import FinishedRun
from tamper import STEPS, read_ledger, read_records, reseal, write_records

from fourmin.base.canonical import canonical_bytes
from fourmin.base.files import json_bytes
from fourmin.log import keys
from fourmin.rules.engine import check
from fourmin.rules.verdict import VALID
from fourmin.system.capture import system_digest

OPTIONAL = {
    "metadata file": "where in the sources a record was written; nothing is made of it",
    "metadata lineno": "as `file`",
    "checkpoint": "a run need not keep any; a restart must have the one that it names (LOG008)",
    "checkpoint at the end": "as all of them",
    "system limits": "a limit that was not captured is taken generously (docs/plausibility.md)",
    "campaign.json package_commit": "an installed package has none, which SYS006 notes",
    "checkpoint value/milliseconds": "how long training waited for it; nothing is made of it",
}
"""What a valid campaign may lack, and why."""

RESTARTED = {"restarts": [(2, 4)], "not_converged": [4], "retried": [3]}

SOURCE = ("file", "lineno")
EVERY_DEPTH = 6
Deletion = Callable[[Path], None]
Deletions = Callable[[Path], Iterator[tuple[str, Deletion]]]


def _paths(value: Any, depth: int = EVERY_DEPTH) -> Iterator[tuple[str, ...]]:
    """Every field of nested objects; of a list its first object stands for all."""
    if isinstance(value, Mapping) and depth:
        for name in value:
            yield (name,)
            yield from ((name, *inner) for inner in _paths(value[name], depth - 1))
    elif isinstance(value, list) and value:
        yield from (("0", *inner) for inner in _paths(value[0], depth - 1))


def _remove(value: Any, path: tuple[str, ...]) -> None:
    for name in path[:-1]:
        value = value[int(name)] if isinstance(value, list) else value.get(name, {})
    value.pop(path[-1], None)


def _log_deletions(folder: Path) -> Iterator[tuple[str, Deletion]]:
    """Records, metadata and fields of values, each in one run's log; the system's in all."""
    records = read_records(folder / "run-2" / "events.log")
    for key in dict.fromkeys(record["key"] for record in records):
        mine = [record for record in records if record["key"] == key]
        yield f"{key}", _in_log(lambda record, key=key: None if record["key"] == key else record)
        if len(mine) > 1:
            yield f"{key} at the end", _in_log(_without_last(key))
        fields = {("metadata", name) for record in mine for name in record["metadata"]}
        if key != keys.SYSTEM:
            fields |= {("value", *path) for record in mine for path in _paths(record["value"])}
        fields -= {("metadata", name) for name in SOURCE} | {("value", "campaign")}  # made again
        for path in sorted(fields):
            yield f"{key} {'/'.join(path)}", _in_log(_without_field(key, path))
    for name in SOURCE:
        yield f"metadata {name}", _in_log(_without_source(name))
    system = next(record for record in records if record["key"] == keys.SYSTEM)
    for path in _paths(system["value"]):
        if path != ("digest",):
            yield f"system {'/'.join(path)}", _without_of_system(path)


def _in_log(change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Deletion:
    def delete(folder: Path) -> None:
        log = folder / "run-2" / "events.log"
        changed = [change(record) for record in read_records(log)]
        write_records(log, [record for record in changed if record is not None])
        reseal(folder)

    return delete


def _without_field(key: str, path: tuple[str, ...]) -> Callable[..., dict[str, Any]]:
    def change(record: dict[str, Any]) -> dict[str, Any]:
        if record["key"] == key:
            _remove(record, path)
        return record

    return change


def _without_source(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(record: dict[str, Any]) -> dict[str, Any]:
        record["metadata"].pop(name, None)
        return record

    return change


def _without_last(key: str) -> Callable[..., dict[str, Any] | None]:
    # Records come in file order, once.
    seen: list[dict[str, Any]] = []

    def change(record: dict[str, Any]) -> dict[str, Any] | None:
        if record["key"] != key:
            return record
        seen.append(record)
        return record if len(seen) == 1 else None

    return change


def _without_of_system(path: tuple[str, ...]) -> Deletion:
    def delete(folder: Path) -> None:
        digest = None
        for log in folder.glob("run-*/events.log"):
            records = read_records(log)
            system = next(record["value"] for record in records if record["key"] == keys.SYSTEM)
            _remove(system, path)
            try:
                digest = system["digest"] = system_digest(system)
            except (KeyError, TypeError):
                pass
            write_records(log, records)
        if digest is not None:
            plan = json.loads((folder / "campaign.json").read_bytes())
            (folder / "campaign.json").write_bytes(json_bytes(plan | {"system_digest": digest}))
        reseal(folder)

    return delete


def _file_deletions(folder: Path, depth: int = EVERY_DEPTH) -> Iterator[tuple[str, Deletion]]:
    """Fields of the plan, of a result, of the summary and of the ledger's records.

    Those of a result, which one comparison covers, only to a depth.
    """
    for name, step, deep in (
        ("campaign.json", "", EVERY_DEPTH),
        ("run-2/result.json", "results", depth),
        ("summary.json", "summary", EVERY_DEPTH),
    ):
        for path in _paths(json.loads((folder / name).read_bytes()), deep):
            yield f"{name} {'/'.join(path)}", _without_of_file(name, path, step)
    for line, record in enumerate(read_ledger(folder / "ledger.jsonl")):
        for path in _paths(record["data"]):
            yield f"{record['kind']} {'/'.join(path)}", _without_of_ledger(line, path)


def _fewer_file_deletions(folder: Path) -> Iterator[tuple[str, Deletion]]:
    """Without what is inside a result's fields, and of the ledger each kind of record once."""
    return iter(dict(_file_deletions(folder, depth=1)).items())


def _without_of_file(name: str, path: tuple[str, ...], step: str) -> Deletion:
    def delete(folder: Path) -> None:
        value = json.loads((folder / name).read_bytes())
        _remove(value, path)
        (folder / name).write_bytes(json_bytes(value))
        try:
            reseal(folder, [one for one in STEPS if one != step])
        except (KeyError, TypeError):  # what depends on such a plan cannot be made
            reseal(folder, ["campaign"])

    return delete


def _without_of_ledger(line: int, path: tuple[str, ...]) -> Deletion:
    def delete(folder: Path) -> None:
        ledger = read_ledger(folder / "ledger.jsonl")
        _remove(ledger[line]["data"], path)
        lines = [canonical_bytes(record) + b"\n" for record in ledger]
        (folder / "ledger.jsonl").write_bytes(b"".join(lines))
        reseal(folder, ["ledger"])

    return delete


def _survivors(
    campaign: Path, deletions: Iterable[tuple[str, Deletion]], tmp_path: Path
) -> set[str]:
    """What can be taken away, and the campaign is as valid as before."""
    assert check([campaign], waivers=()).checked[0].status == VALID
    copy, found = tmp_path / campaign.name, set()
    shutil.copytree(campaign, copy)
    honest = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    for what, delete in deletions:
        for path, data in honest.items():
            if path.read_bytes() != data:
                path.write_bytes(data)
        delete(copy)
        report = check([copy], waivers=())
        assert not [f for f in report.findings if "could not be applied" in f.message], what
        if report.checked[0].status == VALID:
            found.add(what)
    return found


@pytest.mark.parametrize("deletions", [_log_deletions, _fewer_file_deletions])
def test_nothing_can_be_left_out(deletions: Deletions, tmp_path: Path) -> None:
    """A fifth of all; test-slow tries each, of campaigns that hold the same fields and more."""
    campaign = make_campaign(tmp_path / "made")
    some = islice(deletions(campaign), None, None, 5)
    assert _survivors(campaign, some, tmp_path / "copy") <= set(OPTIONAL)


@pytest.mark.slow
@pytest.mark.parametrize("deletions", [_log_deletions, _file_deletions])
def test_nothing_can_be_left_out_of_a_restarted_campaign(
    deletions: Deletions, tmp_path: Path
) -> None:
    campaign = make_campaign(tmp_path / "made", **RESTARTED)
    assert _survivors(campaign, deletions(campaign), tmp_path / "copy") <= set(OPTIONAL)


@pytest.mark.slow
@pytest.mark.parametrize("deletions", [_log_deletions, _file_deletions])
def test_nothing_can_be_left_out_of_a_real_campaign(
    deletions: Deletions, finished_run: Callable[..., FinishedRun], tmp_path: Path
) -> None:
    campaign = finished_run().campaign
    assert _survivors(campaign, deletions(campaign), tmp_path / "copy") <= set(OPTIONAL)
