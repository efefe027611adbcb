"""The released versions of the harness, by the digest of their package: `rules/releases.toml`."""

from __future__ import annotations

import re
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.files import rulesets_folder
from fourmin.base.mishaps import told
from fourmin.base.toml import tomllib

RELEASES_FILE = "releases.toml"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


def released_versions(path: Path | None = None) -> dict[str, str]:
    """Version by package digest; empty where there is no file.

    Raises FourminError for a file that is not as it should be.
    """
    file = path or rulesets_folder() / RELEASES_FILE
    if not file.exists():
        return {}
    with told(f"cannot read {file}", kind=_UNREADABLE):
        releases = tomllib.loads(file.read_text()).get("release", [])
        found = {release["digest"]: str(release["version"]) for release in releases}
    if not all(isinstance(digest, str) and _DIGEST.match(digest) for digest in found):
        raise FourminError(f"{file} holds a digest that is none")
    return found
