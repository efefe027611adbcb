"""A competent forger: changes something, and makes everything anew that follows from it.

He has no training behind his numbers, but he knows every formula: what a log says after its plan,
seeds, results, summary, what restarts say of the log before them, the ledger's chain, and what
later campaigns say of earlier ones.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tamper import STEPS, apply, read_ledger, read_records, reseal, write_ledger, write_records

from fourmin.base.canonical import canonical_bytes, sha256_hex
from fourmin.base.errors import FourminError
from fourmin.base.files import json_bytes
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.results.plan import chips_of
from fourmin.rules.hyperparameters import _expected
from fourmin.system.capture import system_digest

Edit = Mapping[str, Any]
LOGS = "run-*/events.log"
FOLLOWING = "following"
"""Beside tamper's steps: what logs and digests say after the plan."""


def campaigns_below(root: Path) -> list[Path]:
    """The folders of campaigns at `root` and below, in the order of their plans' times."""
    found = [path.parent for path in root.rglob("ledger.jsonl")]
    planned = [folder for folder in found if (folder / "campaign.json").is_file()]
    return sorted(planned, key=lambda folder: (_plan(folder)["created_ms"], folder.as_posix()))


def forge(root: Path, edits: Sequence[Edit] = (), *, keep: Collection[str] = ()) -> None:
    """Carry the edits out (paths are from `root`) and make anew what follows, but for `keep`.

    `root` is a campaign's folder or any folder above some.
    """
    apply(root, edits)
    for folder in campaigns_below(root):
        before = _seeds(folder)
        if FOLLOWING not in keep:
            _follow_the_plan(folder)
        seen = [sha256_hex(line) for line in (folder / "ledger.jsonl").read_bytes().splitlines()]
        opened = read_ledger(folder / "ledger.jsonl")[0]["data"].get("campaign_sha256")
        reseal(folder, [step for step in STEPS if step not in keep])
        if _draw_anew(folder, before):
            reseal(folder, [step for step in STEPS if step not in keep])
        now = [sha256_hex(line) for line in (folder / "ledger.jsonl").read_bytes().splitlines()]
        _tell_later_ones(root, opened, sha256_hex((folder / "campaign.json").read_bytes()),
                         dict(zip(seen, now, strict=True)))  # fmt: skip


def scale(
    folder: Path, factor: float, *, logs: Collection[str] = (LOGS,), ledger: bool = True
) -> None:
    """Shorten everything that takes time by `factor`: in the logs, and in the ledger or not."""
    zero = _plan(folder)["created_ms"]

    def moved(time_ms: float, start: float) -> int:
        return round(start + (time_ms - start) * factor)

    for path in (path for pattern in logs for path in sorted(folder.glob(pattern))):
        records = read_records(path)
        begin = zero if ledger else records[0]["time_ms"]
        for record in records:
            metadata, value = record["metadata"], record["value"]
            record["time_ms"] = moved(record["time_ms"], begin)
            if "monotonic_ms" in metadata:
                first = records[0]["metadata"]["monotonic_ms"]
                metadata["monotonic_ms"] = moved(metadata["monotonic_ms"], first)
            for name in value if isinstance(value, dict) else ():
                if name == "throughput":
                    value[name] /= factor
                elif name in ("milliseconds", "joules") or name.startswith("exposed_ms"):
                    value[name] *= factor
        write_records(path, records)
    if ledger:
        lines = read_ledger(folder / "ledger.jsonl")
        for line in lines:
            line["time_ms"] = moved(line["time_ms"], zero)
            if "run_stop_ms" in line["data"]:
                line["data"]["run_stop_ms"] = moved(line["data"]["run_stop_ms"], zero)
        write_ledger(folder / "ledger.jsonl", lines)


def _plan(folder: Path) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads((folder / "campaign.json").read_bytes())
    return plan


def _logs(folder: Path) -> Iterator[tuple[int, Path, list[dict[str, Any]]]]:
    """Number, path and records of each run's log."""
    for path in sorted(folder.glob(LOGS)):
        yield int(path.parent.name.removeprefix("run-")), path, read_records(path)


def _seeds(folder: Path) -> dict[int, Any]:
    return {
        run: next((r["value"] for r in records if r["key"] == "seed"), None)
        for run, _, records in _logs(folder)
    }


def _follow_the_plan(folder: Path) -> None:
    """What the logs say after plan and ledger, and the plan's digests of what is in it."""
    plan = _plan(folder)
    attempts = {
        line["data"]["run"]: line["data"]["attempt"]
        for line in read_ledger(folder / "ledger.jsonl")
        if line["kind"] == "run-intent"
    }
    plan["configuration_digest"] = sha256_hex(canonical_bytes(plan["configuration"]))
    said: dict[str, Any] = {
        "submission_benchmark": plan["benchmark"],
        "submission_org": plan["submitter"],
        "submission_division": plan["division"],
        "submission_platform": plan["system"],
        "package_digest": plan["package_digest"],
        "configuration": plan["configuration"],
        "dataset": plan["dataset"],
        "train_samples": plan["dataset"]["train_samples"],
        "eval_samples": plan["dataset"]["eval_samples"],
        **_hyperparameters(plan),
    }
    for run, path, records in _logs(folder):
        for record in records:
            if record["key"] in said:
                record["value"] = said[record["key"]]
            elif record["key"] == "campaign":
                record["value"] |= {
                    "run": run,
                    "attempt": attempts.get(run, 1),
                    "practice": plan["practice"],
                    "ruleset": plan["ruleset"],
                }
            elif record["key"] == "system":
                plan["system_digest"] = system_digest(record["value"])
                record["value"]["digest"] = plan["system_digest"]
                plan["chip"], plan["chips"] = chips_of(
                    plan["configuration"], record["value"]["hardware"]
                )
        write_records(path, records)
    (folder / "campaign.json").write_bytes(json_bytes(plan))


def _hyperparameters(plan: Mapping[str, Any]) -> dict[str, Any]:
    try:
        config = Configuration.from_json(plan["configuration"])
    except FourminError:
        return {}
    return _expected(config, OPTIMIZERS[config.optimizer], plan["dataset"]["train_samples"])


def _draw_anew(folder: Path, before: Mapping[int, Any]) -> bool:
    """Digests of weights and order for seeds that changed: any other ones; whether some did."""
    changed = {run: seed for run, seed in _seeds(folder).items() if seed != before.get(run)}
    for run, path, records in _logs(folder):
        for record in records:
            if run in changed and record["key"].endswith(("weights_digest", "order_digest")):
                made = f"{record['key']} {record['metadata'].get('epoch_num')} {changed[run]}"
                record["value"] = sha256_hex(made.encode())
        write_records(path, records)
    return bool(changed)


def _tell_later_ones(root: Path, old: Any, new: str, lines: Mapping[str, str]) -> None:
    """What other plans say of a campaign: its new digest, and for each old line the new one."""
    for folder in campaigns_below(root):
        plan = _plan(folder)
        named = [*plan["earlier_campaigns"], *plan["practice_campaigns"]]
        told = [one for one in named if one["campaign"] == old]
        for one in told:
            one.update(campaign=new, head=lines.get(one["head"], one["head"]))
        if told:
            (folder / "campaign.json").write_bytes(json_bytes(plan))
