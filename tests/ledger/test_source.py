"""Which commit a package is, and what package a commit holds, however hostile its repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from git_history import History

from fourmin.base.errors import FourminError
from fourmin.ledger import git, source
from fourmin.ledger.source import digest_at
from fourmin.system.software import package_digest

TOP = Path(__file__).resolve().parents[2]
ASK = "from fourmin.ledger.source import package_commit; print(package_commit())"


def copy_package(to: Path, rules: str = "rules") -> None:
    """The sources and rulesets at hand, as a checkout has them or, with their folder, a wheel."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TOP / "fourmin", to / "fourmin", ignore=ignored)
    shutil.copytree(TOP / "rules", to / rules)


def commit_of(folder: Path, path: str | None = None) -> str:
    """What the package in `folder` says that it comes from."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    if path is not None:
        environment["PATH"] = path
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=folder, env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A repository that has committed the package at hand."""
    history = History(tmp_path_factory.mktemp("source") / "checkout")
    copy_package(history.root / "packed")
    for name in ("fourmin", "rules"):
        shutil.copytree(history.root / "packed" / name, history.root / name, dirs_exist_ok=True)
    shutil.rmtree(history.root / "packed")
    history.commit({})
    return history


@pytest.fixture
def checkout(template: History, tmp_path: Path) -> History:
    return template.copy(tmp_path / "checkout")


def test_a_checkout_without_changes_is_its_commit(checkout: History) -> None:
    head = checkout.git("rev-parse", "HEAD")
    assert commit_of(checkout.root) == head
    assert digest_at(checkout.root, head) == package_digest()


def test_what_is_not_in_the_digest_may_change(checkout: History) -> None:
    (checkout.root / "README.md").write_text("changed, and not committed")
    (checkout.root / "rules" / "waivers.toml").write_text("")
    assert commit_of(checkout.root) == checkout.git("rev-parse", "HEAD")


def change_a_source(history: History) -> None:
    with (history.root / "fourmin" / "__init__.py").open("a") as file:
        file.write("# changed\n")


def add_a_source(history: History) -> None:
    (history.root / "fourmin" / "more.py").write_text("")


def change_a_ruleset(history: History) -> None:
    (history.root / "rules" / "1.0" / "more.json").write_text("{}")


def convert_line_ends(history: History) -> None:
    path = history.root / "fourmin" / "__init__.py"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    history.git("config", "core.autocrlf", "true")


def forget_history(history: History) -> None:
    shutil.rmtree(history.root / ".git")


@pytest.mark.parametrize(
    "change",
    [change_a_source, add_a_source, change_a_ruleset, convert_line_ends, forget_history],
)
def test_a_package_that_no_commit_holds(
    change: Callable[[History], None], checkout: History
) -> None:
    change(checkout)
    assert commit_of(checkout.root) == "None"


def test_no_git_no_commit(checkout: History, tmp_path: Path) -> None:
    assert commit_of(checkout.root, path=str(tmp_path / "nowhere")) == "None"


def test_an_installed_wheel_below_somebodys_repository_is_no_commit(tmp_path: Path) -> None:
    history = History(tmp_path / "repository")
    installed = history.root / "site-packages"
    copy_package(installed, rules="fourmin/_rulesets")
    history.commit({})
    assert commit_of(installed) == "None"


def test_a_package_deep_in_a_repository_is_no_commit(tmp_path: Path) -> None:
    history = History(tmp_path / "repository")
    copy_package(history.root / "vendored")
    history.commit({})
    assert commit_of(history.root / "vendored") == "None"


def refused(history: History, commit: str, why: str) -> None:
    with pytest.raises(FourminError, match=why):
        digest_at(history.root, commit)


def test_a_commit_that_is_none(checkout: History) -> None:
    refused(checkout, "12" * 20, "cannot find the commit")
    refused(checkout, checkout.git("rev-parse", "HEAD^{tree}"), "cannot find the commit")
    checkout.git("tag", "--annotate", "--message", "x", "v1")
    refused(checkout, checkout.git("rev-parse", "v1"), "is no commit")


@pytest.mark.parametrize("name", ["fourmin/more.py", "rules/more.json"])
def test_a_link_in_a_package_is_refused(name: str, checkout: History) -> None:
    (checkout.root / name).symlink_to("/etc/passwd")
    refused(checkout, checkout.commit({}), "no regular file")


def test_a_package_beyond_the_limit_is_not_read(
    checkout: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MOST_BYTES", 1_000_000)
    refused(checkout, checkout.git("rev-parse", "HEAD"), "more than 1,000,000 bytes")


def test_a_few_objects_that_name_endless_files(tmp_path: Path) -> None:
    """Each folder holds the next one ten times: 10^12 files in 13 objects."""
    history = History(tmp_path / "bomb")
    blob = history.git("hash-object", "-w", "--stdin", given="x")
    entries = "".join(f"100644 blob {blob}\t{i}.py\n" for i in range(10))
    for _ in range(11):
        tree = history.git("mktree", given=entries)
        entries = "".join(f"040000 tree {tree}\t{i}\n" for i in range(10))
    tree = history.git("mktree", given=f"040000 tree {tree}\tfourmin\n")
    commit = history.git("commit-tree", tree, "-m", "x")
    refused(history, commit, "took more than")


def test_what_a_clone_left_out_is_not_fetched(checkout: History, tmp_path: Path) -> None:
    """Neither a connection is opened, nor the program run that the repository names for it."""
    marker = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\nexit 1\n")
    program.chmod(0o755)
    checkout.git("config", "uploadpack.allowFilter", "true")
    checkout.git("clone", "--quiet", "--no-checkout", "--filter=blob:none",
                 f"file://{checkout.root}", str(tmp_path / "clone"))  # fmt: skip
    clone = History.at(tmp_path / "clone")
    head = clone.git("rev-parse", "HEAD")
    clone.git("config", "remote.origin.uploadpack", str(program))
    clone.git("config", "core.sshCommand", str(program))
    with pytest.raises(FourminError):
        digest_at(clone.root, head)
    assert not marker.exists()


def test_git_that_hangs_is_ended(
    checkout: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setattr(git, "SECONDS", 0.2)
    refused(checkout, "12" * 20, r"took more than 0\.2 s")
