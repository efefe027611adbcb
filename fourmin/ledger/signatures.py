"""Signatures of submitters: what is signed, which keys may, and ssh-keygen, which does both.

A submitter's `allowed_signers` has OpenSSH's format (ssh-keygen(1), ALLOWED SIGNERS), of which one
form of line is admitted: `<submitter> namespaces="fourmin" <kind> <key> [comment]`. No certificate
authority, pattern or date: what a key may sign is seen at a glance.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.processes import Scratch
from fourmin.base.text import printable
from fourmin.results.folder import with_unix_line_ends

PLAN_SIGNATURE, LEDGER_SIGNATURE = "campaign.sig", "ledger.sig"
SIGNED = {PLAN_SIGNATURE: "campaign.json", LEDGER_SIGNATURE: "ledger.jsonl"}
"""Which file each signature stands for."""
_NAMESPACE = "fourmin"
_OPTIONS = f'namespaces="{_NAMESPACE}"'
_KINDS = {
    "ssh-ed25519": 2, "ssh-rsa": 3, "ecdsa-sha2-nistp256": 3, "ecdsa-sha2-nistp384": 3,
    "ecdsa-sha2-nistp521": 3, "sk-ssh-ed25519@openssh.com": 3,
    "sk-ecdsa-sha2-nistp256@openssh.com": 4,
}  # fmt: skip
"""Kinds of keys, and how many fields one has (RFC 4253, 5656, 8709; OpenSSH's PROTOCOL.u2f)."""
_LEAST_RSA_BITS = 3072
_ARMOR = re.compile(
    rb"-----BEGIN SSH SIGNATURE-----\n([A-Za-z0-9+/]{1,76}={0,2}\n)+-----END SSH SIGNATURE-----\n"
)
_VERIFY_SECONDS = 60
_SIGN_SECONDS = 300  # somebody types a passphrase, or looks for a token


@dataclass(frozen=True)
class Signing:
    """What a campaign's signatures are worth, by the keys of the base branch."""

    proved: bool = False
    """Whether its end, or its plan where it has not ended, is signed as required."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """The signatures that are required and are missing or wrong, each with why."""
    unproved: str = ""
    """Why nothing could be said of one that is required."""


NOT_SIGNED = Signing()


def message(plan: str, head: str = "") -> bytes:
    """What is signed: the SHA-256 of a plan, or with it that of the last line of its ledger."""
    said = f"fourmin-ledger-v1\n{plan}\n{head}\n" if head else f"fourmin-plan-v1\n{plan}\n"
    return said.encode()


def read_signers(data: bytes, submitter: str | None) -> tuple[list[str], list[tuple[int, str]]]:
    """The keys of a file, each as a line of its own, and the numbers of the lines that do not fit,
    each with why. Of an unknown submitter (None) any name fits.
    """
    keys, wrong = [], []
    for number, line in enumerate(with_unix_line_ends(data).split(b"\n"), start=1):
        key, why = _read_line(line, submitter)
        if why:
            wrong.append((number, why))
        elif key:
            keys.append(key)
    if not keys and not wrong:
        wrong.append((1, "no key, so that nothing could be signed"))
    return keys, wrong


def _read_line(line: bytes, submitter: str | None) -> tuple[str, str]:
    """The key of a line (empty for a comment), or why there is none."""
    text = line.decode("utf-8", "replace").replace("\t", " ")
    if not text.isprintable() or "\ufffd" in text:
        return "", "bytes that are no printable text"
    words = text.split(maxsplit=4)
    if not words or words[0].startswith("#"):
        return "", ""
    if submitter not in (None, words[0]):
        return "", f"the principal is {printable(words[0], 80)!r}, not {submitter!r}"
    if len(words) < 4 or words[1] != _OPTIONS:
        return "", f"not of the form: {words[0][:80]} {_OPTIONS} <kind> <key>"
    return " ".join(words[:4]), _wrong_key(*words[2:4])


def _wrong_key(kind: str, key: str) -> str:
    if kind not in _KINDS:
        return f"{printable(kind, 80)!r} is none of the kinds {', '.join(_KINDS)}"
    try:
        blob = base64.b64decode(key, validate=True)
    except ValueError:
        blob = b""
    fields, at = [], 0
    while at < len(blob):
        size = int.from_bytes(blob[at : at + 4], "big")
        fields.append(blob[at + 4 : at + 4 + size])
        at += 4 + size
    if at != len(blob) or len(fields) != _KINDS[kind] or fields[0] != kind.encode():
        return f"no key of kind {kind}"
    bits = int.from_bytes(fields[2], "big").bit_length() if kind == "ssh-rsa" else _LEAST_RSA_BITS
    return f"an RSA key of {bits} bits, not {_LEAST_RSA_BITS}" if bits < _LEAST_RSA_BITS else ""


def is_signature(data: bytes) -> bool:
    """Whether these bytes are a signature as ssh-keygen writes it, and no others."""
    return _ARMOR.fullmatch(data) is not None


def refusal(signers: bytes | None, submitter: str, said: bytes, signature: bytes | None) -> str:
    """Why `signature` is none of `said` by one of the keys (None: any key); empty where it is one.

    Raises FourminError where ssh-keygen is missing or cannot tell.
    """
    program = require_ssh_keygen()
    if signature is None or not is_signature(signature):
        return "missing" if signature is None else "no signature as ssh-keygen writes it"
    keys, _ = read_signers(signers or b"", submitter)
    whose = ["verify", "-f", "keys", "-I", submitter]
    with Scratch() as scratch:
        (scratch / "keys").write_text("".join(f"{key}\n" for key in keys))
        (scratch / "signature").write_bytes(signature)
        try:
            done = subprocess.run(
                [program, "-Y", *(["check-novalidate"] if signers is None else whose),
                 "-n", _NAMESPACE, "-s", "signature"],
                input=said, capture_output=True, cwd=scratch, check=False,
                env={"PATH": os.environ.get("PATH", os.defpath)}, timeout=_VERIFY_SECONDS,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FourminError(f"ssh-keygen cannot verify: {type(error).__name__}") from None
    told = (done.stderr + done.stdout).decode(errors="replace")
    if done.returncode and "usage:" in told:
        raise FourminError("this ssh-keygen knows no signatures", "OpenSSH has them since 8.1")
    first = printable(told.strip().partition("\n")[0], 120)
    return f"not signed by a key that {submitter} had then: {first}" if done.returncode else ""


def sign(key: Path, said: bytes) -> bytes:
    """A signature by ssh-keygen, which may ask at the terminal.

    `key` is a private key, or a public one whose private half is in the agent.
    Raises FourminError where there is none.
    """
    options = ["-q", "-Y", "sign", "-n", _NAMESPACE, "-f", str(key.absolute())]
    program = require_ssh_keygen()
    signature = b""
    with Scratch() as scratch:
        path = scratch / "message"  # not by standard input, which ssh-keygen asks at
        path.write_bytes(said)
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run([program, *options, path], check=True, timeout=_SIGN_SECONDS)
            signature = path.with_name("message.sig").read_bytes()
    if not is_signature(signature):
        raise FourminError(
            f"ssh-keygen did not sign with {key}",
            "what it says stands above",
            "name a private key, or the .pub of one in the agent",
        )
    return signature


def require_ssh_keygen() -> str:
    """The program. Raises FourminError without it."""
    program = shutil.which("ssh-keygen")
    if program is None:
        raise FourminError(
            "ssh-keygen is not installed here",
            "signatures are made and checked by it",
            "install OpenSSH's client, 8.1 or later",
        )
    return program
