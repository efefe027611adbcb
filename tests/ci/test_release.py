"""The release command and the check of a tag, in a repository of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from git_history import IDENTITY, History

from fourmin.rules.releases import released_versions

TOP = Path(__file__).resolve().parents[2]
FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore", ".gitattributes")
FOLDERS = ("fourmin", "rules", "tools")


class Checkout(History):
    """A repository of this package, whose commit is ready to be released as 1.0.0."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        for name in FOLDERS:
            shutil.copytree(TOP / name, root / name, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
        for name in FILES:
            shutil.copy(TOP / name, root / name)
        self.edit("fourmin/__init__.py", r'__version__ = "[^"]*"', '__version__ = "1.0.0"')
        self.edit("CHANGELOG.md", r"\n## .*", "\n## 1.0.0 (2030-01-02)")
        self.commit({})

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.root / name
        text = path.read_text()
        assert re.search(old, text)
        path.write_text(re.sub(old, new, text, count=1))

    def release(self, *arguments: str, code: int = 0) -> str:
        """What tools/release.py says on both streams."""
        done = subprocess.run(
            [sys.executable, "-B", "tools/release.py", *arguments], cwd=self.root,
            env=os.environ | IDENTITY, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


def build_wheel(checkout: Checkout, to: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--no-index", "--wheel-dir", str(to), str(checkout.root)], check=True,
    )  # fmt: skip
    (wheel,) = to.iterdir()
    return wheel


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("release") / "checkout")


@pytest.fixture(scope="module")
def released(ready: Checkout, tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, Path]:
    """The repository after its release, and the wheel."""
    folder = tmp_path_factory.mktemp("released")
    checkout = ready.copy(folder / "checkout")
    checkout.release("make", "1.0.0")
    return checkout, build_wheel(checkout, folder / "dist")


def test_a_release_is_a_line_a_commit_and_a_tag_that_the_check_accepts(
    ready: Checkout, released: tuple[Checkout, Path]
) -> None:
    checkout, wheel = released
    before = ready.git("rev-parse", "HEAD")
    assert checkout.git("rev-parse", "v1.0.0^{commit}~1") == before
    assert checkout.git("cat-file", "-t", "v1.0.0") == "tag"
    assert checkout.git("diff", "--name-only", before, "v1.0.0") == "rules/releases.toml"
    assert list(released_versions(checkout.root / "rules/releases.toml").values()) == ["1.0.0"]
    assert checkout.git("status", "--porcelain") == ""
    assert checkout.release("check", "v1.0.0", str(wheel)) == ""
    assert "there is a tag v1.0.0 already" in checkout.release("make", "1.0.0", code=1)


def uncommitted(checkout: Checkout) -> None:
    (checkout.root / "README.md").write_text("changed")


def another_version(checkout: Checkout) -> None:
    checkout.edit("fourmin/__init__.py", '"1.0.0"', '"1.0.1"')
    checkout.commit({})


def no_heading(checkout: Checkout) -> None:
    checkout.edit("CHANGELOG.md", r"## 1\.0\.0 .*", "## Unreleased")
    checkout.commit({})


def no_entries(checkout: Checkout) -> None:
    checkout.commit({"CHANGELOG.md": b"# Changelog\n\n## 1.0.0\n\n## 0.9.0\n\n- All of it.\n"})


def ignored_source(checkout: Checkout) -> None:
    checkout.commit({".gitignore": b"secret.py\n"})
    (checkout.root / "fourmin" / "secret.py").write_text("")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (uncommitted, "changes that are not committed"),
        (another_version, "fourmin/__init__.py says 1.0.1, not 1.0.0"),
        (no_heading, "the first heading of CHANGELOG.md is 'Unreleased'"),
        (no_entries, "CHANGELOG.md says nothing under 1.0.0"),
        (ignored_source, "a file of it is ignored by git"),
    ],
)
def test_what_is_not_ready_is_not_released(
    change: Callable[[Checkout], None], said: str, ready: Checkout, tmp_path: Path
) -> None:
    checkout = ready.copy(tmp_path / "checkout")
    change(checkout)
    head = checkout.git("rev-parse", "HEAD")
    assert said in checkout.release("make", "1.0.0", code=1)
    assert checkout.git("rev-parse", "HEAD") == head
    assert checkout.git("tag") == ""


@pytest.mark.parametrize("version", ["", "v1.0.0", "1.0", "1.0.0-final", "1.0.0 "])
def test_what_is_no_version_is_refused(version: str, ready: Checkout) -> None:
    assert "is no version" in ready.release("make", version, code=1)


def tagged_elsewhere(checkout: Checkout, wheel: Path) -> tuple[str, Path]:
    checkout.git("tag", "v1.0.1")
    return "v1.0.1", wheel


def moved_tag(checkout: Checkout, wheel: Path) -> tuple[str, Path]:
    checkout.edit("fourmin/__init__.py", r"\Z", "# later\n")
    checkout.commit({})
    checkout.git("tag", "--force", "v1.0.0")
    checkout.git("checkout", "--quiet", "HEAD~1")
    return "v1.0.0", wheel


def changed_checkout(checkout: Checkout, wheel: Path) -> tuple[str, Path]:
    (checkout.root / "fourmin" / "more.py").write_text("")
    return "v1.0.0", wheel


def changed_wheel(checkout: Checkout, wheel: Path) -> tuple[str, Path]:
    changed = shutil.copy(wheel, checkout.root.parent / wheel.name)
    with zipfile.ZipFile(changed, "a") as archive:
        archive.writestr("fourmin/more.py", "")
    return "v1.0.0", Path(changed)


def no_entry(checkout: Checkout, wheel: Path) -> tuple[str, Path]:
    checkout.git("checkout", "--quiet", "HEAD~1", "--", "rules/releases.toml")
    return "v1.0.0", wheel


def another_digest(checkout: Checkout, wheel: Path) -> tuple[str, Path]:
    checkout.edit("rules/releases.toml", 'digest = "[0-9a-f]{64}"\n', f'digest = "{"a" * 64}"\n')
    return "v1.0.0", wheel


def no_wheel(checkout: Checkout, wheel: Path) -> tuple[str, Path]:
    return "v1.0.0", checkout.root / "CHANGELOG.md"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (tagged_elsewhere, ["fourmin/__init__.py says", "CHANGELOG.md is", "0 entries for 1.0.1"]),
        (moved_tag, ["the tagged commit has the package digest"]),
        (changed_checkout, ["this checkout has the package digest"]),
        (changed_wheel, ["the wheel fourmin-1.0.0-py3-none-any.whl has the package digest"]),
        (no_entry, ["0 entries for 1.0.0"]),
        (another_digest, ["the tagged commit has", "this checkout has", "the wheel fourmin-1.0.0"]),
        (no_wheel, ["is not a zip file"]),
    ],
)
def test_a_tag_that_does_not_agree_is_refused(
    change: Callable[[Checkout, Path], tuple[str, Path]], said: list[str],
    released: tuple[Checkout, Path], tmp_path: Path,
) -> None:  # fmt: skip
    checkout = released[0].copy(tmp_path / "checkout")
    tag, wheel = change(checkout, released[1])
    output = checkout.release("check", tag, str(wheel), code=1)
    assert len(output.splitlines()) == len(said)
    assert all(words in output for words in said)


def test_tags_are_checked_and_nothing_is_published() -> None:
    workflow = (TOP / ".github" / "workflows" / "release.yml").read_text()
    assert re.search(r'tags: \["v\*"\]', workflow)
    assert 'tools/release.py check "$TAG"' in workflow
    assert "contents: read" in workflow
    assert "write" not in workflow
    assert "publish" not in workflow.replace("Nothing is published", "")


def test_a_source_archive_holds_what_a_checkout_does(tmp_path: Path) -> None:
    """So that the tests and the Containerfile work from it, too."""
    checkout = History(tmp_path / "checkout")
    for name in FILES:
        shutil.copy(TOP / name, checkout.root / name)
    for name in (
        "fourmin/__init__.py",
        ".github/workflows/ci.yml",
        ".dockerignore",
        "submissions/s.json",
    ):
        path = checkout.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('__version__ = "1.0.0"\n')
    checkout.commit({})
    (checkout.root / ".venv").mkdir()
    (checkout.root / ".venv" / "ignored").write_text("")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory"]
    subprocess.run([*command, str(tmp_path)], cwd=checkout.root, check=True, capture_output=True)
    with tarfile.open(tmp_path / "fourmin-1.0.0.tar.gz") as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert held == {*checkout.git("ls-files").split(), "PKG-INFO"}
