"""Changes to a campaign's files, by hand or as an attacker who recomputes what depends on them.

`apply` takes the edits of a fixture (plain JSON):

    {"file": F, "set": "/pointer", "to": VALUE}      in a JSON file
    {"file": F, "remove": "/pointer"}
    {"file": F, "line": N, ...}                       in line N of ledger.jsonl, from 1
    {"file": F, "key": K, "nth": N, ...}              in the nth record (from 0, default all) of
                                                      key K of an event log
    with "set"/"to", "remove", "delete": true, "duplicate": true, or "after": {"key", "nth"}
    {"file": F, "text": T} / {"file": F, "append": T} / {"file": F, "replace": [OLD, NEW]}
    {"delete": PATH} / {"copy": PATH, "to": PATH} / {"link": PATH, "to": TARGET}
    {"folder": PATH}

`F` may be a pattern such as `run-*/events.log`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from fourmin.base.canonical import canonical_bytes, sha256_hex
from fourmin.base.files import json_bytes
from fourmin.ledger.seeds import assign_seeds
from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline
from fourmin.results.plan import Plan
from fourmin.results.run_result import RunFacts
from fourmin.results.summary import summarize

HEAD = ":::MLLOG "
STEPS = ("campaign", "seeds", "logs", "results", "summary", "restarts", "ledger")
"""What `reseal` can recompute: the campaign's digest; the seeds from beacon and digest; digest
and seeds in logs and intents; results and statuses; the summary; what restarts say of the log
before them; file hashes and chain."""


def apply(folder: Path, edits: Sequence[Mapping[str, Any]]) -> None:
    """Carry out the edits in order."""
    for edit in edits:
        if "delete" in edit and "file" not in edit:
            path = folder / edit["delete"]
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif "copy" in edit:
            source, target = folder / edit["copy"], folder / edit["to"]
            if source.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(source, target)
            else:
                shutil.copyfile(source, target)
        elif "link" in edit:
            (folder / edit["link"]).unlink(missing_ok=True)
            os.symlink(edit["to"], folder / edit["link"])
        elif "folder" in edit:
            (folder / edit["folder"]).mkdir(parents=True)
        else:
            paths = sorted(folder.glob(edit["file"])) or [folder / edit["file"]]
            for path in paths:
                _edit_file(path, edit)


def _edit_file(path: Path, edit: Mapping[str, Any]) -> None:
    if "text" in edit:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(edit["text"])
    elif "append" in edit:
        with path.open("a") as file:
            file.write(edit["append"])
    elif "replace" in edit:
        old, new = edit["replace"]
        text = path.read_text()
        assert old in text, f"{path.name} does not hold {old!r}"
        path.write_text(text.replace(old, new))
    elif "line" in edit:
        lines = read_ledger(path)
        _edit_items(lines, [edit["line"] - 1], edit, lambda where: where["line"] - 1)
        write_ledger(path, lines)
    elif "key" in edit:
        records = read_records(path)

        def place(where: Mapping[str, Any]) -> int:
            found = [i for i, r in enumerate(records) if r["key"] == where["key"]]
            assert found, f"{path.name} has no {where['key']}"
            return found[where.get("nth", -1)]

        chosen = [i for i, r in enumerate(records) if r["key"] == edit["key"]]
        assert chosen, f"{path.name} has no {edit['key']}"
        if "nth" in edit:
            chosen = [chosen[edit["nth"]]]
        _edit_items(records, chosen, edit, place)
        write_records(path, records)
    else:
        value = json.loads(path.read_bytes())
        _edit_value(value, edit)
        path.write_bytes(json_bytes(value))


def _edit_items(
    items: list[Any],
    chosen: list[int],
    edit: Mapping[str, Any],
    place: Callable[[Mapping[str, Any]], int],
) -> None:
    for index in reversed(chosen):
        if edit.get("delete"):
            del items[index]
        elif edit.get("duplicate"):
            items.insert(index + 1, json.loads(json.dumps(items[index])))
        elif "after" in edit:
            item = items.pop(index)
            items.insert(place(edit["after"]) + 1, item)
        elif "swap" in edit:
            other = edit["swap"] - 1
            items[index], items[other] = items[other], items[index]
        else:
            _edit_value(items[index], edit)


def _edit_value(value: Any, edit: Mapping[str, Any]) -> None:
    pointer = edit["set"] if "set" in edit else edit["remove"]
    *parents, last = pointer.removeprefix("/").split("/")
    for name in parents:
        value = value[int(name)] if isinstance(value, list) else value[name]
    key: Any = int(last) if isinstance(value, list) else last
    if "remove" in edit:
        del value[key]
    elif "add" in edit:
        value[key] += edit["add"]
    else:
        value[key] = edit["to"]


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """The ledger's records as they stand."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def write_ledger(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write a ledger's records as they are, each canonical."""
    path.write_bytes(b"".join(canonical_bytes(dict(line)) + b"\n" for line in lines))


def read_records(path: Path) -> list[dict[str, Any]]:
    """An event log's records as they stand."""
    return [json.loads(line.removeprefix(HEAD)) for line in path.read_text().splitlines()]


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write an event log."""
    path.write_text("".join(f"{HEAD}{json.dumps(record)}\n" for record in records))


def reseal(folder: Path, steps: Collection[str] = STEPS) -> None:
    """Recompute what depends on other files, as an attacker would."""
    assert set(steps) <= set(STEPS), steps
    ledger = read_ledger(folder / "ledger.jsonl")
    plan_bytes = (folder / "campaign.json").read_bytes()
    digest = sha256_hex(plan_bytes)
    seeds_record = next((r for r in ledger if r["kind"] == "seeds-assigned"), None)
    if "campaign" in steps:
        ledger[0]["data"]["campaign_sha256"] = digest
    if "seeds" in steps and seeds_record is not None:
        runs = min(int(json.loads(plan_bytes)["runs"]), 1000)
        seeds_record["data"]["seeds"] = assign_seeds(seeds_record["data"]["beacon"], digest, runs)
    seeds = [] if seeds_record is None else seeds_record["data"].get("seeds", [])
    for path in sorted(folder.glob("run-*/events.log")):
        run = int(path.parent.name.partition("-")[2])
        if {"campaign", "logs"} & set(steps):
            records = read_records(path)
            for record in records:
                if record["key"] == "campaign" and "campaign" in steps:
                    record["value"]["campaign"] = digest
                if record["key"] == "seed" and "logs" in steps and run <= len(seeds):
                    record["value"] = seeds[run - 1]
            write_records(path, records)
        if "results" in steps and (path.parent / "result.json").exists():
            (path.parent / "result.json").write_bytes(json_bytes(_facts(path).to_json()))
    _reseal_ledger(folder, ledger, seeds, digest, steps)


def _facts(log: Path) -> RunFacts:
    """Of a log, most of which nobody has changed since they were last asked for."""
    return _facts_of(log.read_bytes())


@lru_cache(maxsize=32)
def _facts_of(events: bytes) -> RunFacts:
    return RunFacts.of(Timeline(read_log(events)))


def _reseal_ledger(
    folder: Path,
    ledger: list[dict[str, Any]],
    seeds: list[int],
    digest: str,
    steps: Collection[str],
) -> None:
    previous, lines = "0" * 64, []
    for index, record in enumerate(ledger):
        data = record["data"]
        run = data.get("run")
        if record["kind"] == "run-intent" and "logs" in steps and run <= len(seeds):
            data["seed"] = seeds[run - 1]
        result = folder / f"run-{run}" / "result.json"
        if record["kind"] == "run-result" and result.exists():
            if "results" in steps:
                data["status"] = json.loads(result.read_bytes())["status"]
            if "ledger" in steps:
                events = result.parent / "events.log"
                for name, path in (("result_sha256", result), ("events_sha256", events)):
                    if name in data:
                        data[name] = sha256_hex(path.read_bytes())
        if record["kind"] == "run-restart" and "restarts" in steps:
            _reseal_restart(folder / f"run-{run}" / "events.log", data)
        if record["kind"] == "campaign-close":
            _reseal_summary(folder, previous, digest, steps)
            if "ledger" in steps and "summary_sha256" in data:
                data["summary_sha256"] = sha256_hex((folder / "summary.json").read_bytes())
        if "ledger" in steps:
            record["index"], record["previous"] = index, previous
            unhashed = {name: value for name, value in record.items() if name != "hash"}
            record["hash"] = sha256_hex(canonical_bytes(unhashed))
        line = canonical_bytes(record)
        previous = sha256_hex(line)
        lines.append(line + b"\n")
    (folder / "ledger.jsonl").write_bytes(b"".join(lines))


def _reseal_restart(log: Path, data: dict[str, Any]) -> None:
    at = 0
    for line, record in zip(log.read_bytes().splitlines(True), read_records(log), strict=True):
        value = record["value"] or {}
        if record["key"] == "run_restart" and value.get("restart") == data["restart"]:
            before = log.read_bytes()[:at]
            data.update(events_bytes=at, events_sha256=sha256_hex(before))
            return
        at += len(line)


def _reseal_summary(folder: Path, head: str, digest: str, steps: Collection[str]) -> None:
    path = folder / "summary.json"
    if "summary" in steps:
        logs = sorted(folder.glob("run-*/events.log"), key=lambda p: int(p.parent.name[4:]))
        runs = [_facts(log) for log in logs]
        plan = json.loads((folder / "campaign.json").read_bytes())
        path.write_bytes(json_bytes(summarize(Plan.from_json(plan), digest, head, runs)))
    elif "ledger" in steps:
        summary = json.loads(path.read_bytes())
        if "ledger_head" in summary:
            summary["ledger_head"] = head
        path.write_bytes(json_bytes(summary))
