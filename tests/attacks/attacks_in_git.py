"""What a change may not do, with a base to compare it with: history, waivers, registration."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from attack import attack, not_preventable
from attacks_on_runs import record
from forger import forge
from worlds import RACK, campaigns, commit, git, known, land, submit, turn_beacon

from fourmin.rules.engine import load_campaign


def _next(root: Path, number: int = 10, **story: Any) -> Path:
    """A new campaign of `lab` that names its two earlier ones."""
    there = campaigns(root / "submissions", "lab")
    return submit(root / "submissions", "lab", "box", number, **{"earlier": known(*there), **story})


@attack("repository", "SUB007")
def an_earlier_campaign_deleted(root: Path) -> None:
    _next(root)
    shutil.rmtree(campaigns(root / "submissions", "lab")[0])
    commit(root)


@attack("repository", "SUB007")
def an_earlier_campaign_renamed(root: Path) -> None:
    first = campaigns(root / "submissions", "lab")[0]
    first.rename(first.with_name("digits-better"))
    commit(root)


@attack("repository", "SUB007", "LED011")
def an_earlier_campaign_made_better(root: Path) -> None:
    forge(campaigns(root / "submissions", "lab")[0], [
        record("eval_accuracy", -1, "run-1/events.log", set="/value", to=1.0),
        record("eval_accuracy", -1, "run-1/events.log", set="/metadata/correct_count", to=360),
        record("run_stop", None, "run-1/events.log", set="/metadata/status", to="success"),
    ])  # fmt: skip
    commit(root)


@attack("repository", "LED011")
def a_merged_ledger_cut_back(root: Path) -> None:
    folder = submit(root / "submissions", "lab", "box", 10, killed_in=3)
    land(root)
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:8]))
    shutil.rmtree(folder / "run-3")
    commit(root)


@attack("repository", "SUB007")
def a_file_turned_into_a_link(root: Path) -> None:
    path = campaigns(root / "submissions", "lab")[0] / "summary.json"
    path.unlink()
    path.symlink_to("campaign.json")
    commit(root)


@attack("repository", "SUB006")
def a_rule_changed_together_with_a_result(root: Path) -> None:
    _next(root)
    (root / "rules/waivers.toml").write_text("# nothing\n")
    commit(root)


@attack("repository", "SUB006")
def a_rivals_folder_touched(root: Path) -> None:
    _next(root)
    (root / "submissions/rival/rack/system.json").unlink()
    commit(root)


@attack("repository", "SUB006")
def a_submission_of_two_submitters(root: Path) -> None:
    _next(root)
    submit(root / "submissions", "shell", "box", 11)
    commit(root)


def _waive(root: Path, code: str, folder: Path) -> None:
    """A waiver for a campaign as it is now."""
    view = load_campaign(folder)
    (root / "rules/waivers.toml").write_text(
        f'[[waiver]]\ncode = "{code}"\ncampaign = "{view.digest}"\n'
        f'head = "{view.entries[-1].sha256}"\nreason = "a mistake"\nby = "me"\n'
    )


def _wrong(folder: Path) -> None:
    forge(folder, [{"file": "summary.json", "set": "/minutes", "to": 0.001}], keep={"summary"})


@attack("repository", "RUN008", "SUB006")
def a_waiver_that_comes_with_the_result(root: Path) -> None:
    folder = _next(root)
    _wrong(folder)
    _waive(root, "RUN008", folder)
    commit(root)


@attack("repository", "RUN008")
def a_waiver_of_one_ledger_for_another(root: Path) -> None:
    """The maintainers waived what they saw; the ledger was another one then."""
    folder = _next(root)
    kept = root.parent / "kept"
    shutil.copytree(folder, kept)
    _wrong(folder)
    _waive(root, "RUN008", folder)
    shutil.rmtree(folder)
    land(root)
    shutil.copytree(kept, folder)
    forge(folder, [{"file": "summary.json", "set": "/minutes", "to": 0.0005}], keep={"summary"})
    commit(root)


@attack("repository", "SUB004")
def a_waiver_in_the_submission(root: Path) -> None:
    folder = _next(root)
    (folder.parent.parent / "waivers.toml").write_text("")
    commit(root)


def _registered(root: Path, beacon: str = "", number: int = 20, **story: Any) -> Path:
    """A plan that landed, a beacon after it, and the campaign that was run then."""
    made = _next(root, number, **story)
    plan, ledger = ((made / name).read_bytes() for name in ("campaign.json", "ledger.jsonl"))
    kept = root.parent / f"kept-{number}"
    made.rename(kept)
    made.mkdir()
    (made / "campaign.json").write_bytes(plan)
    (made / "ledger.jsonl").write_bytes(ledger.splitlines(keepends=True)[0])
    land(root)
    turned = turn_beacon(root)
    shutil.rmtree(made)
    kept.rename(made)
    forge(made, [
        {"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": beacon or turned},
        {"file": "ledger.jsonl", "line": 2, "set": "/data/registration", "to": "registered"},
    ])  # fmt: skip
    return made


@attack("repository", "LED012")
def a_beacon_of_ones_own(root: Path) -> None:
    _registered(root, "12" * 20)
    commit(root)


@attack("repository", "LED012")
def the_merge_itself_as_the_beacon(root: Path) -> None:
    folder = _registered(root)
    landing = git(
        root, "log", "--format=%H", "--diff-filter=A", "--", str(folder / "campaign.json")
    )
    forge(folder, [{"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": landing}])
    commit(root)


@attack("repository", "LED012")
def a_plan_that_comes_with_its_results_and_says_registered(root: Path) -> None:
    folder = _next(root)
    forge(folder, [
        {"file": "ledger.jsonl", "line": 2, "set": "/data/beacon",
         "to": git(root, "rev-parse", "HEAD")},
        {"file": "ledger.jsonl", "line": 2, "set": "/data/registration", "to": "registered"},
    ])  # fmt: skip
    commit(root)


@attack("repository", "LED012", "SUB007")
def a_plan_changed_after_its_registration(root: Path) -> None:
    folder = _registered(root)
    forge(folder, [{"file": "campaign.json", "set": "/settings", "to": ["momentum=0.9"]}])
    commit(root)


@attack("repository", "LED012")
def a_plan_taken_back_and_landed_again_for_another_beacon(root: Path) -> None:
    folder = _registered(root)
    kept = root.parent / "run"
    folder.rename(kept)
    land(root)
    shutil.copytree(kept, folder, ignore=shutil.ignore_patterns("run-*", "summary.json"))
    first = (kept / "ledger.jsonl").read_bytes().splitlines(keepends=True)[0]
    (folder / "ledger.jsonl").write_bytes(first)
    land(root)
    beacon = turn_beacon(root, "22" * 32)
    shutil.rmtree(folder)
    kept.rename(folder)
    forge(folder, [{"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": beacon}])
    commit(root)


@attack("repository", "LED012")
def an_empty_commit_as_the_beacon(root: Path) -> None:
    folder = _registered(root)
    tried = land(root)
    forge(folder, [{"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": tried}])
    commit(root)


@attack("repository", "LED012")
def a_commit_to_another_file_as_the_beacon(root: Path) -> None:
    folder = _registered(root)
    (root / "README.md").write_text("tried until it pleased\n")
    tried = land(root)
    forge(folder, [{"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": tried}])
    commit(root)


@attack("repository", "LED012")
def a_beacon_on_the_submitters_own_branch(root: Path) -> None:
    folder = _registered(root)
    (root / "rules/beacon").write_text("33" * 32 + "\n")
    tried = commit(root)
    git(root, "checkout", "--quiet", "main", "--", "rules/beacon")
    forge(folder, [{"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": tried}])
    commit(root)


@not_preventable("repository", "Beacons that were tried")
def a_beacon_that_a_maintainer_tried(root: Path) -> None:
    """Commits that nobody pushed: of several beacons the one whose seeds please."""
    folder = _registered(root)
    beacon = git(root, "rev-parse", "main")
    git(root, "checkout", "--quiet", "--detach", "main")
    (root / "rules/beacon").write_text("44" * 32 + "\n")
    git(root, "add", "rules/beacon")
    git(root, "commit", "--quiet", "--amend", "--message", "pleases")
    tried = git(root, "rev-parse", "HEAD")
    assert tried != beacon
    git(root, "branch", "--force", "main", tried)
    git(root, "checkout", "--quiet", "-B", "change")
    forge(folder, [{"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": tried}])
    commit(root)


@attack("repository", "SUB006")
def a_beacon_that_comes_with_a_plan(root: Path) -> None:
    _next(root)
    (root / "rules/beacon").write_text("77" * 32 + "\n")
    commit(root)


@attack("repository", "SUB020")
def a_beacon_hidden_in_a_change_of_several_commits(root: Path) -> None:
    before = (root / "rules/beacon").read_text()
    (root / "rules/beacon").write_text("77" * 32 + "\n")
    commit(root)
    (root / "rules/beacon").write_text(before)
    (root / "README.md").write_text("hello\n")
    commit(root)


@attack("repository", "LED010")
def an_earlier_campaign_not_named_though_it_had_landed(root: Path) -> None:
    _registered(root, earlier=[])
    commit(root)


@attack("repository", "CLK009")
def seeds_before_the_merge(root: Path) -> None:
    """Of a campaign that claims registration: its seeds are older than the landing of its plan."""
    _registered(root, number=18)  # commits are of the twentieth hour
    commit(root)


@not_preventable("repository", "Who a folder belongs to")
def a_campaign_in_the_folder_of_somebody_else(root: Path) -> None:
    there = campaigns(root / "submissions", "rival")
    submit(root / "submissions", "rival", "rack", 30, system=RACK, earlier=known(*there))
    commit(root)
