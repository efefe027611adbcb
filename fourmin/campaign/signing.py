"""Signing what a submitter submits, where the base branch holds keys of theirs."""

from __future__ import annotations

from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.ledger.campaign import Sign
from fourmin.ledger.git import Repository
from fourmin.ledger.signatures import refusal, sign
from fourmin.results.places import SIGNERS_FILE


def signer(home: Path, submitter: str, key: Path | None) -> Sign | None:
    """What signs a message with `key`; None without one. `home` is the submitter's folder among
    submissions, if it is called so.

    Raises FourminError where the base branch holds keys of the submitter and none is given. What
    is returned raises it where this key is not among those, or ssh-keygen does not sign.
    """
    keys = _keys(home.resolve()) if home.resolve().name == submitter else None
    if key is None:
        if keys is not None:
            raise FourminError(
                f"{submitter} signs, and no key was given",
                f"{SIGNERS_FILE} on the base branch holds keys, so that what is not signed by one "
                "of them is refused (LED025)",
                "--signing-key FILE: a private key, or the .pub of one in the agent",
            )
        return None

    def signed(said: bytes) -> bytes:
        signature = sign(key, said)
        if keys is not None and refusal(keys, submitter, said, signature):
            raise FourminError(
                f"{key} is none of the keys of {submitter}",
                f"{SIGNERS_FILE} on the base branch does not hold it",
                f"sign with another one, or change {SIGNERS_FILE} first, in a change of its own; "
                "`git fetch` where that was merged already",
            )
        return signature

    return signed


def _keys(home: Path) -> bytes | None:
    """The file of signers at the base; None without it, or git."""
    try:
        repository = Repository.around(home)
        path = repository and repository.relative(str(home / SIGNERS_FILE))
        return repository.read(path) if repository and path else None
    except FourminError:
        return None
