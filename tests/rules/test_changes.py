"""Pull requests to a repository of submissions, in real git repositories."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import CREATED_MS, make_campaign, system_description
from tamper import STEPS, apply, reseal

from fourmin.base.errors import FourminError
from fourmin.base.files import json_bytes
from fourmin.ledger.campaign import Campaign
from fourmin.ledger.git import Repository
from fourmin.ledger.known import KnownCampaign
from fourmin.rules.engine import check
from fourmin.rules.rule import ERROR

PLACE = Path("submissions/lab/box/digits")
WHEN = f"{CREATED_MS // 1000} +0000"


def _git(root: Path, *arguments: str) -> str:
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "a",
                "GIT_COMMITTER_EMAIL": "a@b.c", "GIT_CONFIG_GLOBAL": "/dev/null",
                "GIT_AUTHOR_DATE": WHEN, "GIT_COMMITTER_DATE": WHEN}  # fmt: skip
    result = subprocess.run(
        ["git", *arguments], cwd=root, env=os.environ | identity, check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    return result.stdout.strip()


def _commit(root: Path) -> str:
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--message", "change")
    return _git(root, "rev-parse", "HEAD")


def _submit(root: Path, submitter: str, name: str, **story: Any) -> Path:
    system = root / "submissions" / submitter / "box"
    target = system / "digits" / name
    made = make_campaign(
        root.parent / "made", submitter=submitter, system_name="box", name=name, **story
    )
    shutil.copytree(made, target)
    shutil.rmtree(made)
    (system / "system.json").write_bytes(json_bytes(system_description(submitter, "box")))
    return target


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a failed campaign of `lab` and one of `other` on its main branch."""
    root = tmp_path_factory.mktemp("git") / "repository"
    root.mkdir()
    _git(root, "init", "--quiet", "--initial-branch", "main")
    (root / "rules").mkdir()
    (root / "rules" / "waivers.toml").write_text("")
    _commit(root)
    _submit(root, "lab", "failed", not_converged=[1, 2])
    _submit(root, "other", "first", beacon="0a" * 32)
    _commit(root)
    _git(root, "checkout", "--quiet", "-b", "change")
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    shutil.copytree(template, folder)
    return folder


def _errors(root: Path, base: str = "main") -> set[tuple[str, str]]:
    report = check([root / "submissions"], base=base)
    prefix = f"{root}/"
    return {(f.code, f.path.removeprefix(prefix)) for f in report.findings if f.fails}


def _next(root: Path, **story: Any) -> Path:
    return _submit(root, "lab", "next", created_ms=CREATED_MS + 10**6, beacon="0b" * 32, **story)


def test_an_honest_pull_request(root: Path) -> None:
    _next(root)
    assert _errors(root) == set()  # not committed yet
    _commit(root)
    assert _errors(root) == set()
    report = check([root / "submissions"], base="main")
    assert [f.path for f in report.findings if f.code == "LED013"] == [
        f"{root}/{PLACE}/next/campaign.json"
    ]


def test_the_base_may_have_moved_on(root: Path) -> None:
    _next(root)
    _commit(root)
    _git(root, "checkout", "--quiet", "main")
    (root / "README.md").write_text("hello")
    _commit(root)
    _git(root, "checkout", "--quiet", "change")
    assert _errors(root) == set()


def test_no_submission_is_touched(root: Path) -> None:
    (root / "rules" / "waivers.toml").write_text("# by a maintainer\n")
    (root / "submissions" / "README.md").write_text("how to submit\n")
    _commit(root)
    assert _errors(root) == set()


@pytest.mark.parametrize(
    "path",
    [
        "rules/waivers.toml",
        "fourmin/rules.py",
        "submissions/other/box/notes.txt",
        "submissions/README.md",
        "a b",
    ],
)
def test_something_else_with_it(root: Path, path: str) -> None:
    _next(root)
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text("x")
    assert ("SUB006", path) in _errors(root)
    _commit(root)
    assert ("SUB006", path) in _errors(root)


def test_a_waiver_of_the_change_is_not_taken(root: Path) -> None:
    target = _next(root)
    apply(target, [{"file": "summary.json", "set": "/minutes", "to": 0.001}])
    reseal(target, ["ledger"])
    from fourmin.rules.engine import load_campaign

    view = load_campaign(target)
    names = f'campaign = "{view.digest}"\nhead = "{view.head}"\n'
    waiver = f'[[waiver]]\ncode = "RUN008"\n{names}reason = "why"\nby = "me"\n'
    (root / "rules" / "waivers.toml").write_text(waiver)
    assert ("RUN008", f"{PLACE}/next/summary.json") in _errors(root)
    # In the base it counts.
    shutil.move(root / "submissions" / "lab" / "box" / "digits" / "next", root.parent / "kept")
    _commit(root)
    _git(root, "branch", "--force", "main", "change")
    shutil.move(root.parent / "kept", target)
    assert _errors(root) == set()


def test_an_earlier_failed_campaign_deleted(root: Path) -> None:
    _next(root)
    shutil.rmtree(root / PLACE / "failed")
    _commit(root)
    assert ("SUB007", f"{PLACE}/failed/ledger.jsonl") in _errors(root)


def test_an_earlier_failed_campaign_renamed(root: Path) -> None:
    (root / PLACE / "failed").rename(root / PLACE / "better")
    _commit(root)
    assert ("SUB007", f"{PLACE}/failed/campaign.json") in _errors(root)


def test_an_earlier_failed_campaign_edited_and_resealed(root: Path) -> None:
    failed = root / PLACE / "failed"
    edits: list[dict[str, Any]] = [
        {"file": "run-1/events.log", "key": "eval_accuracy", "nth": -1, "set": "/value", "to": 1.0},
        {"file": "run-1/events.log", "key": "eval_accuracy", "nth": -1,
         "set": "/metadata/correct_count", "to": 360},
        {"file": "run-1/events.log", "key": "run_stop", "set": "/metadata/status",
         "to": "success"},
    ]  # fmt: skip
    apply(failed, edits)
    reseal(failed, STEPS)
    _commit(root)
    assert _errors(root) >= {
        ("SUB007", f"{PLACE}/failed/run-1/events.log"),
        ("LED011", f"{PLACE}/failed/ledger.jsonl"),
    }


def test_a_file_turned_into_a_link(root: Path) -> None:
    path = root / PLACE / "failed" / "summary.json"
    path.unlink()
    path.symlink_to("campaign.json")
    _commit(root)
    assert ("SUB007", f"{PLACE}/failed/summary.json") in _errors(root)


def _beacon(root: Path, content: str = "ab" * 32) -> str:
    """A commit of the maintainers that changes the beacon's file and nothing else."""
    (root / "rules" / "beacon").write_text(f"{content}\n")
    return _commit(root)


def _register(root: Path, beacon: str | None, *, named: bool = True) -> str:
    """Merge a plan alone, then run it with the beacon (by default the first after); its path.

    It names the submitter's failed campaign on the branch, unless told otherwise.
    """
    failed = Campaign(root / PLACE / "failed")
    earlier = [KnownCampaign(failed.digest, "digits", False, failed.head)] if named else []
    made = make_campaign(
        root.parent / "made",
        submitter="lab",
        system_name="box",
        name="registered",
        earlier=earlier,
    )
    target = root / PLACE / "registered"
    target.mkdir(parents=True)
    shutil.copyfile(made / "campaign.json", target / "campaign.json")
    lines = (made / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (target / "ledger.jsonl").write_bytes(lines[0])
    _commit(root)
    first = _beacon(root)
    _git(root, "branch", "--force", "main", "change")
    shutil.copytree(made, target, dirs_exist_ok=True)
    apply(target, [
        {"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": beacon or first},
        {"file": "ledger.jsonl", "line": 2, "set": "/data/registration", "to": "registered"},
    ])  # fmt: skip
    reseal(target)
    return f"{PLACE}/registered"


def test_a_registered_campaign(root: Path) -> None:
    _register(root, None)
    assert _errors(root) == set()
    _commit(root)
    assert _errors(root) == set()


def test_a_plan_that_does_not_name_what_was_on_the_branch(root: Path) -> None:
    path = _register(root, None, named=False)
    assert _errors(root) == {("LED010", f"{path}/campaign.json")}
    assert all(f.code != "LED010" or not f.fails for f in check([root / "submissions"]).findings)
    # The other one's landing later is no reason; neither is one that registered itself.
    _next(root)
    _commit(root)
    assert _errors(root) == {("LED010", f"{path}/campaign.json")}


def test_a_registered_campaign_with_another_beacon(root: Path) -> None:
    path = _register(root, "12" * 20)
    assert ("LED012", f"{path}/ledger.jsonl") in _errors(root)


def test_a_registered_campaign_whose_plan_came_with_its_results(root: Path) -> None:
    path = _register(root, None)
    assert ("LED012", f"{path}/campaign.json") in _errors(root, "main~2")


def test_a_registered_campaign_before_its_beacon(root: Path) -> None:
    path = _register(root, None)
    assert ("LED012", f"{path}/ledger.jsonl") in _errors(root, "main~1")


def test_the_landing_of_a_registered_campaign_is_no_beacon(root: Path) -> None:
    path = _register(root, _git(root, "rev-parse", "HEAD"))
    landing = _git(root, "rev-parse", "main~1")
    apply(root / path, [{"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": landing}])
    reseal(root / path)
    assert ("LED012", f"{path}/ledger.jsonl") in _errors(root)


def test_a_registration_that_was_taken_back(root: Path) -> None:
    path = _register(root, None)
    shutil.move(root / path, root.parent / "kept")
    _commit(root)
    _git(root, "branch", "--force", "main", "change")
    shutil.move(root.parent / "kept", root / path)
    found = check([root / "submissions"], base="main").findings
    (finding,) = [f for f in found if f.code == "LED012"]
    assert "took the plan back" in finding.message


@pytest.mark.parametrize("taken_back", [False, True])
def test_the_beacon_is_the_maintainers(root: Path, taken_back: bool) -> None:
    _next(root)
    _commit(root)
    ground = _beacon(root)
    if taken_back:
        (root / "rules" / "beacon").unlink()
        _commit(root)
    found = check([root / "submissions"], base="main").findings
    (finding,) = [f for f in found if f.code == "SUB020"]
    assert finding.path == "rules/beacon"
    assert ground[:12] in finding.message
    assert any(f.code == "SUB006" and f.path == "rules/beacon" for f in found) is not taken_back


def test_a_beacon_hidden_in_a_change_without_submissions(root: Path) -> None:
    (root / "README.md").write_text("hello")
    _beacon(root)
    (root / "rules" / "beacon").unlink()
    _commit(root)
    assert _errors(root) == {("SUB020", "rules/beacon")}


def test_a_beacon_with_a_statement_of_an_audit(root: Path) -> None:
    (root / "audits" / "lab").mkdir(parents=True)
    (root / "audits" / "lab" / "statement.json").write_text("{}")
    _beacon(root)
    assert ("SUB020", "rules/beacon") in _errors(root)


def test_maintainers_may_write_the_beacon(root: Path) -> None:
    _beacon(root)
    assert _errors(root) == set()


def test_a_change_that_merged_the_base_with_its_beacons(root: Path) -> None:
    _next(root)
    _commit(root)
    _git(root, "checkout", "--quiet", "main")
    _beacon(root)
    _git(root, "checkout", "--quiet", "change")
    _git(root, "merge", "--quiet", "--no-edit", "main")
    assert _errors(root) == set()


def test_a_plan_changed_after_its_registration(root: Path) -> None:
    path = _register(root, None)
    apply(root / path, [{"file": "campaign.json", "set": "/settings", "to": ["x=1"]}])
    reseal(root / path)
    found = _errors(root)
    assert ("LED012", f"{path}/campaign.json") in found
    assert ("SUB007", f"{path}/campaign.json") in found
    assert ("LED011", f"{path}/ledger.jsonl") in found


def test_a_shallow_clone(root: Path, tmp_path: Path) -> None:
    _next(root)
    _commit(root)
    _git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{root}", "shallow")
    with pytest.raises(FourminError, match="shallow") as raised:
        check([tmp_path / "shallow" / "submissions"], base="HEAD")
    assert raised.value.exit_code == 2
    assert "fetch-depth: 0" in raised.value.next_step


@pytest.mark.parametrize("reference", ["nosuch", "--output=x", "", "main^{tree}"])
def test_a_reference_that_is_none(root: Path, reference: str) -> None:
    with pytest.raises(FourminError) as raised:
        check([root / "submissions"], base=reference)
    assert raised.value.exit_code == 2
    assert raised.value.next_step


def test_no_repository(tmp_path: Path) -> None:
    make_campaign(tmp_path / "results")
    with pytest.raises(FourminError, match="git"):
        check([tmp_path / "results"], base="main")


def test_a_repositorys_own_programs_are_not_run(root: Path) -> None:
    marker = root.parent / "ran"
    script = root.parent / "program"
    script.write_text(f"#!/bin/sh\ntouch {marker}\n")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "core.pager"):
        _git(root, "config", key, str(script))
    (root / ".gitattributes").write_text("* diff=own\n")
    _git(root, "config", "diff.own.textconv", str(script))
    marker.unlink(missing_ok=True)
    _next(root)
    _errors(root)
    assert not marker.exists()


def test_what_the_base_holds(root: Path) -> None:
    history = Repository.open(root, "main")
    plan = f"{PLACE}/failed/campaign.json"
    assert history.read(plan) == (root / plan).read_bytes()
    assert history.read("no/such/file") is None
    assert history.relative(str(root / plan)) == plan
    assert history.relative("/elsewhere") is None
    assert json.loads(history.read(plan) or b"")["submitter"] == "lab"


def test_errors_of_the_base_are_not_hidden(root: Path) -> None:
    report = check([root / "submissions"], base="main")
    assert [f for f in report.findings if f.severity == ERROR] == []
