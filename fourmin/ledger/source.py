"""The commit that a package is: where everybody finds the source of a harness by its digest."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import fourmin
from fourmin.base.errors import FourminError
from fourmin.base.files import rulesets_folder
from fourmin.ledger.git import files_at, head_of, repository_around
from fourmin.system.software import digest_of, in_package, package_digest

MOST_BYTES = 32 * 1024 * 1024
"""Most that a commit's package may have: some twenty times what it has."""


@cache
def package_commit() -> str | None:
    """The commit that this package is checked out from, unchanged; None where it is not.

    An installed wheel comes from no commit, even below somebody's repository.
    """
    top = Path(fourmin.__file__).resolve().parents[1]
    if repository_around(top) != top or rulesets_folder() != top / "rules":
        return None
    try:
        commit = head_of(top)
        return commit if digest_at(top, commit) == package_digest() else None
    except FourminError:
        return None


@cache
def digest_at(repository: Path, commit: str) -> str:
    """The package digest of a commit, whoever made it. Raises FourminError where it has none."""
    return digest_of(files_at(repository, commit, ("fourmin", "rules"), in_package, MOST_BYTES))
