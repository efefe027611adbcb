"""Released versions of the harness by their package's digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from campaign_factory import make_campaign
from git_history import History
from tamper import STEPS, apply, reseal

from fourmin.base.errors import FourminError
from fourmin.ledger.source import digest_at
from fourmin.rules import system
from fourmin.rules.engine import check, check_campaign, load_campaign
from fourmin.rules.releases import released_versions
from fourmin.rules.rule import NOTE
from fourmin.system.software import digest_of

PACKAGE = {"fourmin/a.py": b"print()\n", "rules/1.0/ruleset.json": b"{}\n"}


def test_releases_are_read_by_digest(tmp_path: Path) -> None:
    file = tmp_path / "releases.toml"
    assert released_versions(file) == {}
    file.write_text(f'[[release]]\nversion = "1.0.0"\ndigest = "{"a" * 64}"\n')
    assert released_versions(file) == {"a" * 64: "1.0.0"}


@pytest.mark.parametrize(
    "text", ["[[release", '[[release]]\nversion = "1"\n', '[[release]]\nversion="1"\ndigest="x"\n']
)
def test_a_faulty_file_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "releases.toml"
    file.write_text(text)
    with pytest.raises(FourminError):
        released_versions(file)


def _said(campaign: Path) -> str:
    """What SYS006 says of a campaign; empty where it says nothing."""
    found = [finding for finding in check_campaign(campaign) if finding.code == "SYS006"]
    assert all(finding.severity == NOTE and not finding.unchecked for finding in found)
    return "".join(finding.message for finding in found)


def test_a_released_harness_is_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_campaign(tmp_path)
    assert "the plan names no commit" in _said(folder)
    plan = load_campaign(folder).plan
    assert plan is not None
    monkeypatch.setattr(system, "released_versions", lambda: {plan.package_digest: "1.0.0"})
    assert _said(folder) == ""


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A repository whose first commit has a package."""
    history = History(tmp_path / "repository")
    history.commit(dict(PACKAGE))
    return history


def _campaign(results: Path, commit: str, package: Mapping[str, bytes] = PACKAGE) -> Path:
    """A campaign whose plan says that it ran `package`, and that this is `commit`."""
    folder = make_campaign(results)
    apply(folder, [
        {"file": "campaign.json", "set": "/package_digest", "to": digest_of(package)},
        {"file": "run-*/events.log", "key": "package_digest", "set": "/value",
         "to": digest_of(package)},
        {"file": "campaign.json", "set": "/package_commit", "to": commit},
    ])  # fmt: skip
    reseal(folder, STEPS)
    return folder


def test_a_commit_with_the_package_is_as_good_as_a_release(history: History) -> None:
    first = history.git("rev-parse", "HEAD")
    history.commit({"fourmin/a.py": b"another\n"})
    folder = _campaign(history.root / "results", first)
    assert _said(folder) == ""


def test_a_commit_with_another_package_says_nothing(history: History) -> None:
    other = history.commit({"fourmin/b.py": b"another\n"})
    assert f"the package of commit {other} is another one" in _said(
        _campaign(history.root / "results", other)
    )


def test_a_commit_that_is_not_here(history: History, tmp_path: Path) -> None:
    elsewhere = _campaign(tmp_path / "elsewhere", history.git("rev-parse", "HEAD"))
    assert "no git repository is here" in _said(elsewhere)
    unknown = _campaign(history.root / "results", "12" * 20)
    assert f"git cannot find the commit {'12' * 20}" in _said(unknown)


def test_a_shallow_clone_has_no_earlier_commits(history: History, tmp_path: Path) -> None:
    first = history.git("rev-parse", "HEAD")
    _campaign(history.root / "results", first)
    history.commit({})
    history.git("clone", "--quiet", "--depth=1", f"file://{history.root}", str(tmp_path / "clone"))
    (folder,) = (tmp_path / "clone" / "results").iterdir()
    assert f"cannot find the commit {first}" in _said(folder)


def test_without_git_all_else_is_checked(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _campaign(history.root / "results", history.git("rev-parse", "HEAD"))
    with_git = check([history.root / "results"])
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    digest_at.cache_clear()
    assert "git is not installed here" in _said(folder)
    without = check([history.root / "results"])
    assert without.ok
    assert [f for f in without.findings if f.code != "SYS006"] == list(with_git.findings)
