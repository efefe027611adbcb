"""Keys and signatures by ssh-keygen itself, and what a submitter has to sign, made by hand."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

SIGNATURES = ("campaign.sig", "ledger.sig")


@cache
def make_key(name: str, *options: str) -> Path:
    """A private key without a passphrase; its public half has `.pub` behind. Once a process."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("there is no ssh-keygen here")
    path = Path(tempfile.mkdtemp(prefix="fourmin-keys-")) / name
    command = ["ssh-keygen", "-q", "-N", "", "-C", name, "-f", str(path), "-t"]
    subprocess.run([*command, *(options or ("ed25519",))], check=True)
    return path


def line_of(submitter: str, key: Path) -> str:
    return f'{submitter} namespaces="fourmin" {key.with_name(key.name + ".pub").read_text()}'


def allow(submissions: Path, submitter: str, *keys: Path) -> Path:
    """These keys, and no others, are the submitter's."""
    path = submissions / submitter / "allowed_signers"
    path.write_text("".join(line_of(submitter, key) for key in keys))
    return path


def signature(message: bytes, key: Path, namespace: str = "fourmin") -> bytes:
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(key)]
    return subprocess.run(command, input=message, check=True, capture_output=True).stdout


def messages(campaign: Path) -> dict[str, bytes]:
    """What the two signatures sign."""
    plan = hashlib.sha256((campaign / "campaign.json").read_bytes()).hexdigest()
    head = hashlib.sha256((campaign / "ledger.jsonl").read_bytes().splitlines()[-1]).hexdigest()
    return {
        "campaign.sig": f"fourmin-plan-v1\n{plan}\n".encode(),
        "ledger.sig": f"fourmin-ledger-v1\n{plan}\n{head}\n".encode(),
    }


def sign(campaign: Path, key: Path, names: Sequence[str] = SIGNATURES) -> Path:
    for name in names:
        (campaign / name).write_bytes(signature(messages(campaign)[name], key))
    return campaign
