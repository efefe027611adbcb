"""The workflow that writes rules/beacon: its script, run on repositories as they come."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from git_history import IDENTITY, History
from workflows import scripts

from fourmin.ledger.git import Repository
from fourmin.ledger.landings import BEACON_FILE, Landings

TOP = Path(__file__).resolve().parents[2]
WORKFLOW = (TOP / ".github" / "workflows" / "beacon.yml").read_text()
PLACE = "submissions/lab/box/digits/first"
PLAN, LEDGER = f"{PLACE}/campaign.json", f"{PLACE}/ledger.jsonl"
OPEN = b'{"data":{},"kind":"campaign-open"}\n'
CLOSED = OPEN + b'{"data":{},"kind":"campaign-close"}\n'


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A maintainer's clone of a repository of submissions that has a beacon."""
    history = History(tmp_path / "clone")
    history.git("init", "--quiet", "--bare", "--initial-branch", "main", "../origin")
    history.git("remote", "add", "origin", "../origin")
    return history


def run(history: History, asked: str = "false", code: int = 0) -> list[str]:
    """Push main and run the workflow on a fresh checkout; the commits that it adds to main."""
    history.git("push", "--quiet", "origin", "main")
    before = history.git("rev-parse", "main")
    runner = history.root.parent / f"runner-{len(list(history.root.parent.iterdir()))}"
    history.git("clone", "--quiet", "../origin", str(runner))
    (script,) = scripts(WORKFLOW)
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=runner, capture_output=True, text=True, check=False,
        env=os.environ | IDENTITY | {"ASKED": asked},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    history.git("pull", "--quiet", "--ff-only", "origin", "main")
    return history.git("rev-list", "--reverse", f"{before}..main").split()


def test_a_plan_that_landed_gets_a_beacon_and_only_one(history: History) -> None:
    landed = history.commit({PLAN: b"{}", LEDGER: OPEN})
    before = (history.root / BEACON_FILE).read_bytes()
    (beacon,) = run(history)
    landing = Landings(Repository.open(history.root, "main")).of(PLAN, b"{}")
    assert landing is not None
    assert (landing.commit, landing.beacon) == (landed, beacon)
    written = (history.root / BEACON_FILE).read_text()
    assert re.fullmatch(r"[0-9a-f]{64}\n", written)
    assert written.encode() != before
    assert run(history) == []
    history.commit({PLAN.replace("first", "second"): b"{}"})
    assert len(run(history)) == 1
    assert (history.root / BEACON_FILE).read_text() != written


def test_the_first_beacon_of_a_repository_that_had_none(history: History) -> None:
    history.commit({BEACON_FILE: None, PLAN: b"{}"})
    assert len(run(history)) == 1
    assert run(history) == []


def test_a_ledger_gets_one_when_it_is_closed(history: History) -> None:
    history.commit({PLAN: b"{}", LEDGER: OPEN})
    run(history)
    history.commit({LEDGER: OPEN + b'{"data":{},"kind":"run-intent"}\n'})
    assert run(history) == []
    history.commit({LEDGER: CLOSED})
    assert len(run(history)) == 1


def test_what_is_neither_gets_none(history: History) -> None:
    history.commit({"README.md": b"x", "results/campaign.json": b"{}", f"{PLACE}/x.json": b""})
    assert run(history) == []
    history.commit({PLAN: b"{}"})
    run(history)
    history.commit({PLAN: None})
    assert run(history) == []


def test_a_maintainer_can_ask_for_one(history: History) -> None:
    assert len(run(history, asked="true")) == 1


def test_a_commit_that_changes_the_beacon_and_more_is_none(history: History) -> None:
    history.commit({PLAN: b"{}"})
    history.commit({BEACON_FILE: b"x", "README.md": b"x"})
    assert len(run(history)) == 1


def test_main_that_moves_meanwhile_is_followed(history: History, tmp_path: Path) -> None:
    """The first push meets a commit that arrived since the fetch, and is refused."""
    history.commit({PLAN: b"{}"})
    history.git("push", "--quiet", "origin", "main")
    other = tmp_path / "other"
    history.git("clone", "--quiet", "../origin", str(other))
    History.at(other).commit({"README.md": b"meanwhile"})
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-push").write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/pushed ] && exit 0\ntouch {tmp_path}/pushed\n"
        f"unset GIT_DIR; cd {other} && git push --quiet origin main\n"
    )
    (hooks / "pre-push").chmod(0o755)
    history.git("config", "--file", str(tmp_path / "config"), "core.hooksPath", str(hooks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
        history.git("config", "core.hooksPath", "/dev/null")
        moved, beacon = run(history)
    assert history.git("log", "-1", "--format=%s", moved) == "change"
    assert history.git("diff", "--name-only", f"{beacon}~1", beacon) == BEACON_FILE


def test_a_repository_that_refuses_the_push_fails(history: History, tmp_path: Path) -> None:
    history.commit({PLAN: b"{}"})
    history.git("push", "--quiet", "origin", "main")
    hook = tmp_path / "origin" / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert run(history, code=1) == []


def test_the_workflow_runs_on_main_alone_and_executes_nothing_of_it() -> None:
    assert re.search(r"push:\n +branches: \[main\]\n", WORKFLOW)
    assert "pull_request" not in WORKFLOW
    (script,) = scripts(WORKFLOW)
    assert "${{" not in script
    programs = re.findall(r"\b(?:python|pip|make|npm|sh|bash)\b|\./", script)
    assert programs == []


def test_the_beacon_at_hand_is_one() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}\n", (TOP / BEACON_FILE).read_text())
