"""Makes a release of fourmin, and checks one.

    python tools/release.py make 1.0.0                check, write rules/releases.toml, commit, tag
    python tools/release.py check v1.0.0 dist/*.whl   does all that names the release agree?

`make release VERSION=1.0.0` calls the first; .github/workflows/release.yml calls the second for
every tag. A maintainer has set the version in fourmin/__init__.py and given CHANGELOG.md its
heading before, in a commit of its own. Nothing is pushed or published.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the package of this checkout, whatever is installed

from fourmin import __version__  # noqa: E402
from fourmin.base.errors import FourminError  # noqa: E402
from fourmin.ledger.source import digest_at, package_commit  # noqa: E402
from fourmin.rules.releases import RELEASES_FILE, released_versions  # noqa: E402
from fourmin.system.software import package_digest  # noqa: E402

RELEASES = ROOT / "rules" / RELEASES_FILE
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:(?:a|b|rc)[0-9]+)?\Z")
_ASK = (
    "import sys; sys.path.insert(0, sys.argv[1]); import fourmin; "
    "from fourmin.system.software import package_digest; "
    "print(fourmin.__version__, package_digest())"
)


def git(*arguments: str) -> str:
    """What git says in this checkout. Raises FourminError where it fails."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FourminError(f"git {arguments[0]} failed", done.stderr.strip())
    return done.stdout.strip()


def against_version(version: str) -> Iterator[str]:
    """Why the files of this checkout are not those of release `version`."""
    if not _VERSION.match(version):
        yield f"{version} is no version such as 1.0.0 or 1.0.0rc1"
    if __version__ != version:
        yield f"fourmin/__init__.py says {__version__}, not {version}"
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading, _, entries = [*text.split("\n## "), ""][1].partition("\n")
    if heading.split(" ")[0] != version:
        yield f"the first heading of CHANGELOG.md is {heading!r}, not '{version} (<date>)'"
    elif not entries.strip():
        yield f"CHANGELOG.md says nothing under {version}"


def against_making(version: str) -> Iterator[str]:
    """Why release `version` cannot be made here and now."""
    yield from against_version(version)
    if git("status", "--porcelain"):
        yield "the working tree has changes that are not committed"
    if git("tag", "--list", f"v{version}"):
        yield f"there is a tag v{version} already"
    for digest, released in released_versions(RELEASES).items():
        if version == released or digest == package_digest():
            yield f"rules/{RELEASES_FILE} has {released} with the digest {digest[:16]} already"
    if package_commit() is None:
        yield "the package on disk is not that of the commit: a file of it is ignored by git"


def make(version: str) -> list[str]:
    """Make the release; or say what stands against it, and change nothing."""
    problems = list(against_making(version))
    if problems:
        return problems
    with RELEASES.open("a", encoding="utf-8") as file:
        file.write(f'\n[[release]]\nversion = "{version}"\ndigest = "{package_digest()}"\n')
    git("commit", "--quiet", "--message", f"Release {version}", "--", str(RELEASES))
    git("tag", "--annotate", "--message", f"fourmin {version}", f"v{version}")
    print(f"tagged v{version}; `git push origin HEAD v{version}` makes it known")
    return []


def check(tag: str, wheel: Path) -> Iterator[str]:
    """What does not agree: the tag, its commit, this checkout, the wheel, rules/releases.toml."""
    version = tag.removeprefix("v")
    if tag == version:
        yield f"the tag {tag} does not begin with v"
    yield from against_version(version)
    stated = [digest for digest, name in released_versions(RELEASES).items() if name == version]
    if len(stated) != 1:
        yield f"rules/{RELEASES_FILE} has {len(stated)} entries for {version}"
        return
    wheel_version, wheel_digest = of_wheel(wheel)
    if wheel_version != version:
        yield f"the wheel {wheel.name} says that it is {wheel_version}"
    digests = {
        "the tagged commit": digest_at(ROOT, git("rev-parse", "--verify", f"{tag}^{{commit}}")),
        "this checkout": package_digest(),
        f"the wheel {wheel.name}": wheel_digest,
    }
    for what, digest in digests.items():
        if digest != stated[0]:
            yield f"{what} has the package digest {digest}, rules/{RELEASES_FILE} {stated[0]}"


def of_wheel(wheel: Path) -> tuple[str, str]:
    """What the package in a wheel says itself: its version and its digest."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        command = [sys.executable, "-B", "-c", _ASK, folder]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FourminError(f"the package in {wheel} does not start", done.stderr[-2000:])
    version, digest = done.stdout.split()
    return version, digest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make").add_argument("version")
    checking = commands.add_parser("check")
    checking.add_argument("tag")
    checking.add_argument("wheel", type=Path)
    given = parser.parse_args()
    try:
        if given.command == "make":
            problems = make(given.version)
        else:
            problems = list(check(given.tag, given.wheel))
    except (FourminError, OSError, zipfile.BadZipFile) as error:
        problems = [str(error)]
    for problem in problems:
        print(f"release: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
