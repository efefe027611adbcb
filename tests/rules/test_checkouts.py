"""Checkouts that git made in another way: converted line ends, another user's, none at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from campaign_factory import make_campaign, system_description
from git_history import History
from processes import fourmin
from tamper import apply

from fourmin.base.files import json_bytes
from fourmin.rules.engine import check

TOP = Path(__file__).resolve().parents[2]
PLACE = "submissions/lab/box/digits"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A repository of two campaigns, without .gitattributes."""
    folder = tmp_path_factory.mktemp("checkouts")
    history = History(folder / "repository")
    for beacon in ("0a", "0b"):
        made = make_campaign(
            folder / "made", submitter="lab", system_name="box", beacon=beacon * 32,
            nonce=beacon * 16,
        )  # fmt: skip
        shutil.copytree(made, history.root / PLACE / made.name)
    description = json_bytes(system_description("lab", "box"))
    history.commit({"submissions/lab/box/system.json": description})
    return history


@pytest.fixture
def history(template: History, tmp_path: Path) -> History:
    return template.copy(tmp_path / "repository")


def converted(history: History, to: Path) -> History:
    """A clone as Git for Windows makes it."""
    history.git("clone", "--quiet", "--config", "core.autocrlf=true", str(history.root), str(to))
    return History.at(to)


def errors(root: Path, base: str | None = None) -> list[tuple[str, str]]:
    findings = check([root / "submissions"], base=base).findings
    return [(f.code, f.path.removeprefix(f"{root}/")) for f in findings if f.fails]


@pytest.mark.parametrize("base", [None, "main"])
def test_a_converted_checkout_is_one_finding_for_each_campaign(
    base: str | None, history: History, tmp_path: Path
) -> None:
    clone = converted(history, tmp_path / "clone")
    campaigns = sorted((clone.root / PLACE).iterdir())
    assert all(b"\r\n" in (one / "ledger.jsonl").read_bytes() for one in campaigns)
    expected = [("SCH008", one.relative_to(clone.root).as_posix()) for one in campaigns]
    assert errors(clone.root, base) == expected
    findings = check([clone.root / "submissions"]).findings
    (hint,) = {finding.hint for finding in findings if finding.code == "SCH008"}
    assert ".gitattributes" in hint
    assert "core.autocrlf" in hint
    assert "git checkout" in hint


def test_what_the_hint_says_puts_it_right(history: History, tmp_path: Path) -> None:
    clone = converted(history, tmp_path / "clone")
    clone.git("config", "core.autocrlf", "false")
    shutil.rmtree(clone.root / "submissions")
    clone.git("checkout", "--", ".")
    assert errors(clone.root, "main") == []


def test_the_attributes_of_this_repository_keep_every_byte(
    history: History, tmp_path: Path
) -> None:
    history.commit({".gitattributes": (TOP / ".gitattributes").read_bytes()})
    clone = converted(history, tmp_path / "clone")
    assert errors(clone.root, "main") == []
    assert clone.git("ls-files", "--eol", "submissions").count("w/crlf") == 0


def test_what_else_is_wrong_is_still_said(history: History, tmp_path: Path) -> None:
    clone = converted(history, tmp_path / "clone")
    first = sorted((clone.root / PLACE).iterdir())[0]
    apply(first, [{"file": "run-2/events.log", "replace": ["success", "aborted"]}])
    log = first / "run-2" / "events.log"
    log.write_bytes(log.read_bytes().replace(b"\n", b"\r\n"))
    place = first.relative_to(clone.root).as_posix()
    assert ("LED004", f"{place}/run-2/events.log") in errors(clone.root)


def test_line_ends_that_git_did_not_convert_are_an_edit(history: History) -> None:
    """Git converts all of a file's line ends or none."""
    first = sorted((history.root / PLACE).iterdir())[0]
    log = first / "run-2" / "events.log"
    log.write_bytes(log.read_bytes().replace(b"\n", b"\r\n", 3))
    found = errors(history.root)
    place = first.relative_to(history.root).as_posix()
    assert ("LED004", f"{place}/run-2/events.log") in found
    assert "SCH008" not in {code for code, _ in found}


def test_a_run_alone_in_a_converted_checkout(history: History, tmp_path: Path) -> None:
    clone = converted(history, tmp_path / "clone")
    run = sorted((clone.root / PLACE).iterdir())[0] / "run-1"
    report = check([run])
    assert [(f.code, f.path) for f in report.findings if f.fails] == [("SCH008", str(run))]


def test_another_users_checkout_names_the_way_out(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    # Git's own tests have this variable; fourmin takes it from git's environment.
    (programs / "git").write_text(
        f'#!/bin/sh\nGIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {shutil.which("git")} "$@"\n'
    )
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path))
    submissions = str(history.root / "submissions")
    done = fourmin("validate", submissions, "--base", "main", state=tmp_path)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "belongs to another user" in said
    assert f"git config --global --add safe.directory {history.root}" in said.replace("│ ", "")
    assert fourmin("validate", submissions, state=tmp_path).returncode == 0


def test_only_base_needs_git(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions = str(history.root / "submissions")
    monkeypatch.setenv("PATH", str(tmp_path))
    done = fourmin("validate", submissions, "--format", "json", state=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"]
    done = fourmin("validate", submissions, "--base", "main", state=tmp_path)
    assert done.returncode == 2
    assert "git is not installed here" in done.stderr
