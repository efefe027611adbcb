"""The action, the hook and the workflow: their scripts run, and what they must never do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from campaign_factory import make_campaign, system_description
from foreign_factory import make_package
from git_history import History
from signing import line_of, make_key
from workflows import scripts

from fourmin.base.files import json_bytes

REPOSITORY = Path(__file__).resolve().parents[2]
ACTION = (REPOSITORY / "action.yml").read_text()
WORKFLOW = (REPOSITORY / ".github" / "workflows" / "submissions.yml").read_text()


def run_action(workspace: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The action's last step, as a composite action's shell runs it."""
    python = workspace / "temp" / "fourmin" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    environment = {
        "CHECK_PATHS": "submissions",
        "CHECK_FORMAT": "github",
        "CHECK_BASE": "",
        "CHECK_BEFORE": "",
        "CHECK_STRICT": "false",
        "CHECK_FOLDER": ".",
        "SARIF_FILE": "",
    } | inputs
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", scripts(ACTION)[-1]],
        cwd=workspace,
        env=os.environ
        | {"RUNNER_TEMP": f"{workspace}/temp", "GITHUB_WORKSPACE": str(workspace)}
        | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(("runs", "code"), [(5, 0), (4, 1)])
def test_the_action_ends_as_validate_does(runs: int, code: int, tmp_path: Path) -> None:
    make_package(tmp_path / "change" / "results", runs=runs)
    done = run_action(
        tmp_path, CHECK_FOLDER="change", CHECK_PATHS="results", SARIF_FILE="findings.sarif"
    )
    assert done.returncode == code, done.stderr
    assert ("::error " in done.stdout) == bool(code)
    assert '"version": "2.1.0"' in (tmp_path / "findings.sarif").read_text()


@pytest.mark.parametrize(("base", "code"), [("main", 2), ("", 0)])
def test_a_change_is_not_judged_without_ssh_keygen_where_submitters_sign(
    base: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "change"
    history = History(root)
    make_campaign(root / "submissions/lab/box/digits", submitter="lab", system_name="box")
    history.commit({
        "submissions/lab/box/system.json": json_bytes(system_description("lab", "box")),
        "submissions/lab/allowed_signers": line_of("lab", make_key("lab")).encode(),
    })  # fmt: skip
    (tmp_path / "bin").mkdir()
    for name in ("bash", "git", "sed"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    done = run_action(tmp_path, CHECK_FOLDER="change", CHECK_BASE=base)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("ssh-keygen is not installed" in done.stderr) == bool(base)


def test_nothing_there_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "submissions").mkdir()
    assert run_action(tmp_path).returncode == 2


def test_several_paths_and_inputs_that_look_like_code(tmp_path: Path) -> None:
    make_package(tmp_path / "a b")
    make_package(tmp_path / "other", runs=4)
    assert run_action(tmp_path, CHECK_PATHS="a b\n\n").returncode == 0
    assert run_action(tmp_path, CHECK_PATHS="a b\nother\n").returncode == 1
    done = run_action(tmp_path, CHECK_PATHS="$(touch pwned)\n--strict\n`touch pwned`")
    assert done.returncode == 2
    assert not (tmp_path / "pwned").exists()


def test_modules_of_the_checked_folder_are_not_imported(tmp_path: Path) -> None:
    make_package(tmp_path)
    (tmp_path / "fourmin.py").write_text("raise SystemExit(77)")
    (tmp_path / "json.py").write_text("raise SystemExit(78)")
    assert run_action(tmp_path, CHECK_PATHS="v4.0", PYTHONPATH=str(tmp_path)).returncode == 0


@pytest.fixture
def pushed(tmp_path: Path) -> History:
    """A checkout whose branch was rewritten by a push, and an origin that still has what was."""
    history = History(tmp_path / "change")
    make_campaign(history.root / "results")
    history.commit({})
    history.git("branch", "before")
    history.commit({"README.md": b"another"}, "--amend")
    history.git("clone", "--quiet", "--bare", ".", "../origin")
    history.git("-C", "../origin", "config", "uploadpack.allowAnySHA1InWant", "true")
    history.git("remote", "add", "origin", "../origin")
    return history


def test_a_push_is_compared_with_what_was_there_before(pushed: History) -> None:
    workspace, before = pushed.root.parent, pushed.git("rev-parse", "before")

    def run(**inputs: str) -> subprocess.CompletedProcess[str]:
        return run_action(workspace, CHECK_FOLDER="change", CHECK_PATHS="results", **inputs)

    done = run(CHECK_BEFORE=before)
    assert done.returncode == 1, done.stderr
    assert "SUB021" in done.stdout
    assert run(CHECK_BEFORE=pushed.git("rev-parse", "main")).returncode == 0
    assert run(CHECK_BEFORE="0" * 40).returncode == 0
    done = run(CHECK_BEFORE="ab" * 20)
    assert (done.returncode, "before the push" in done.stderr) == (2, True)
    assert run(CHECK_BEFORE=before, CHECK_BASE="HEAD").returncode == 2
    assert run(CHECK_BEFORE="$(touch pwned)").returncode == 2
    assert not (pushed.root / "pwned").exists()


def test_the_workflow_fetches_what_a_push_left_behind(pushed: History) -> None:
    before = pushed.git("rev-parse", "before")
    clone = History.at(pushed.root.parent / "runner")
    pushed.git("-C", "../origin", "branch", "--delete", "--force", "before")
    pushed.git("clone", "--quiet", "file://" + str(pushed.root.parent / "origin"), str(clone.root))
    (script,) = scripts(WORKFLOW)

    def has_it(name: str) -> bool:
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=clone.root, env=os.environ | {"BEFORE": name},
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return before in clone.git("cat-file", "--batch-all-objects", "--batch-check")

    assert not any(map(has_it, ("", "0" * 40, "ab" * 20, "--all", "main")))
    assert has_it(before)
    assert has_it(before)


def test_the_state_before_is_that_of_a_push_and_the_base_that_of_a_pull_request() -> None:
    assert "github.event_name == 'push' && github.event.before || ''" in WORKFLOW
    assert "github.event_name == 'pull_request_target' && 'HEAD^1' || ''" in WORKFLOW


def test_no_input_is_pasted_into_a_script() -> None:
    for text in (ACTION, WORKFLOW):
        for script in scripts(text):
            assert "${{" not in script


def test_tool_and_rules_come_from_the_base_and_the_change_is_only_data() -> None:
    assert "pull_request_target" in WORKFLOW
    assert "github.event.pull_request.base.sha" in WORKFLOW
    assert WORKFLOW.count("persist-credentials: false") == WORKFLOW.count("actions/checkout@")
    assert re.search(r"permissions:\n  contents: read\n", WORKFLOW)
    assert "write" not in WORKFLOW
    assert "uses: ./base" in WORKFLOW
    assert "uses: ./change" not in WORKFLOW
    assert '"$GITHUB_ACTION_PATH"' in ACTION


def test_the_hook_names_a_command_that_exists() -> None:
    from typer.testing import CliRunner

    from fourmin.cli.main import app

    hook = (REPOSITORY / ".pre-commit-hooks.yaml").read_text()
    match = re.search(r"entry: fourmin (\w+)", hook)
    assert match is not None
    assert CliRunner().invoke(app, [match.group(1), "--help"]).exit_code == 0


def test_a_commit_is_checked_by_the_tools_of_make_check_and_by_no_code_from_elsewhere() -> None:
    configuration = (REPOSITORY / ".pre-commit-config.yaml").read_text()
    makefile = (REPOSITORY / "Makefile").read_text()
    check = re.search(r"^check: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert check is not None
    tools = re.findall(r"\$\(BIN\)/(\w+(?: [a-z]+)?)", check.group(1))
    assert tools == ["ruff check", "ruff format", "mypy"]
    assert re.findall(r"entry: \.venv/bin/(\w+(?: [a-z]+)?)", configuration) == tools
    assert re.findall(r"repo: (.*)", configuration) == ["local"]
    assert set(re.findall(r"language: (.*)", configuration)) == {"system"}
