"""What is attacked: honest campaigns in a folder, below a root of submissions, and in git."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from campaign_factory import CREATED_MS, SYSTEM, make_campaign, system_description

from fourmin.base.files import json_bytes
from fourmin.ledger.campaign import Campaign

_HARDWARE = SYSTEM["hardware"]
RACK = SYSTEM | {
    "hardware": _HARDWARE | {"processor": _HARDWARE["processor"] | {"model": "Other CPU"}}
}
"""The machine of `rival`."""
HOUR_MS = 3_600_000


def submit(root: Path, submitter: str, name: str, number: int, **story: Any) -> Path:
    """A campaign in its place below a root of submissions, with the system's description.

    `number` counts hours, and makes it another campaign.
    """
    told = {
        "created_ms": CREATED_MS + number * HOUR_MS,
        "beacon": f"{number + 1:064x}",
        "nonce": f"{number + 1:032x}",
    } | story
    benchmark = told.get("benchmark", "digits")
    folder = make_campaign(
        root / submitter / name / benchmark, submitter=submitter, system_name=name, **told
    )
    description = root / submitter / name / "system.json"
    if not description.exists():
        description.write_bytes(json_bytes(system_description(submitter, name)))
    return folder


def known(*folders: Path) -> list[list[Any]]:
    """What a later campaign's story names as its `earlier` ones."""
    found = [Campaign(folder) for folder in folders]
    return [[one.digest, one.plan.benchmark, one.plan.practice, one.head] for one in found]


def make_submissions(root: Path) -> None:
    """Two campaigns of `lab`, the first of which failed and the second names it; one of `rival`
    on a machine with another processor.
    """
    failed = submit(root, "lab", "box", 0, not_converged=[1, 2])
    submit(root, "lab", "box", 1, earlier=known(failed))
    submit(root, "rival", "rack", 2, system=RACK)
    description = root / "rival/rack/system.json"
    told = system_description("rival", "rack") | {"host_processor_model_name": "Other CPU"}
    description.write_bytes(json_bytes(told))
    (root / "README.md").write_text("# Submissions\n")


def campaigns(root: Path, submitter: str) -> list[Path]:
    """A submitter's campaigns, in the order of their making."""
    return sorted(path.parent for path in (root / submitter).glob("*/*/*/campaign.json"))


def git(root: Path, *arguments: str, who: str = "a <a@b.c>", hours: float = 20) -> str:
    """What git says to somebody, so many hours after the first campaign could be made."""
    name, _, address = who.partition(" <")
    said = {
        "NAME": name,
        "EMAIL": address.rstrip(">"),
        "DATE": f"{CREATED_MS // 1000 + int(hours * 3600)} +0000",
    }
    told = {f"GIT_{role}_{one}": said[one] for role in ("AUTHOR", "COMMITTER") for one in said}
    done = subprocess.run(
        ["git", *arguments], cwd=root, env=os.environ | told | {"GIT_CONFIG_GLOBAL": "/dev/null"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


def commit(root: Path, *options: str, **by: Any) -> str:
    """Everything that is there as one commit; its id."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "change", *options, **by)
    return git(root, "rev-parse", "HEAD")


def make_repository(root: Path, *, empty: bool = False) -> None:
    """The submissions, rules and a beacon on the branch `main`; the branch `change` goes on.

    `empty` is without submissions, also in its history.
    """
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "--quiet", "--initial-branch", "main")
    (root / "rules").mkdir()
    (root / "rules/waivers.toml").write_text("")
    (root / "rules/beacon").write_text("00" * 32 + "\n")
    commit(root)
    if not empty:
        make_submissions(root / "submissions")
        commit(root)
    git(root, "checkout", "--quiet", "-b", "change")


def land(root: Path, **by: Any) -> str:
    """Everything that is there, and the branch `main` up to it."""
    landed = commit(root, **by)
    git(root, "branch", "--force", "main", "change")
    return landed


def turn_beacon(root: Path, value: str = "11" * 32, **by: Any) -> str:
    """The maintainers' next beacon, on `main`: the id of its commit."""
    (root / "rules/beacon").write_text(value + "\n")
    return land(root, **by)


def copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
