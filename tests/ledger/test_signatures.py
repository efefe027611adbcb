"""What counts as a key and as a signature, against ssh-keygen and by hand."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest
from signing import line_of, make_key, signature

from fourmin.base.errors import FourminError
from fourmin.ledger import signatures
from fourmin.ledger.signatures import (
    is_signature,
    message,
    read_signers,
    refusal,
    sign,
)

MESSAGE = b"fourmin-plan-v1\nabc\n"


def test_the_messages_are_what_the_documentation_says() -> None:
    assert message("ab") == b"fourmin-plan-v1\nab\n"
    assert message("ab", "cd") == b"fourmin-ledger-v1\nab\ncd\n"


def _key(kind: str, *fields: bytes) -> str:
    """A key as RFC 4253 writes it."""
    parts = (kind.encode(), *fields)
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"{kind} {base64.b64encode(blob).decode()}"


ED25519 = _key("ssh-ed25519", b"k" * 32)
FITTING = {
    "plain": f'lab namespaces="fourmin" {ED25519}',
    "with a comment": f'lab namespaces="fourmin" {ED25519} Jörg, build machine 1',
    "with tabs": f'lab\tnamespaces="fourmin"\t{ED25519}',
    "a token's": 'lab namespaces="fourmin" '
    + _key("sk-ssh-ed25519@openssh.com", b"k" * 32, b"ssh:"),
    "a token's ECDSA": 'lab namespaces="fourmin" '
    + _key("sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", b"\x04" * 65, b"ssh:"),
    "RSA of 3072 bits": 'lab namespaces="fourmin" '
    + _key("ssh-rsa", b"\1\0\1", b"\0" + b"\x80" * 384),
}
WRONG = {
    "a pattern": f'la* namespaces="fourmin" {ED25519}',
    "everybody": f'* namespaces="fourmin" {ED25519}',
    "a list": f'lab,rival namespaces="fourmin" {ED25519}',
    "quoted": f'"lab" namespaces="fourmin" {ED25519}',
    "another case": f'Lab namespaces="fourmin" {ED25519}',
    "no option": f"lab {ED25519}",
    "an option in front": f'lab cert-authority,namespaces="fourmin" {ED25519}',
    "an option behind": f'lab namespaces="fourmin",cert-authority {ED25519}',
    "an authority alone": f"lab cert-authority {ED25519}",
    "a time": f'lab valid-after="20200101",namespaces="fourmin" {ED25519}',
    "any namespace": f'lab namespaces="*" {ED25519}',
    "two namespaces": f'lab namespaces="fourmin,git" {ED25519}',
    "a kind that is none": f'lab namespaces="fourmin" ssh-dss {ED25519.split()[1]}',
    "RSA of 3071 bits": 'lab namespaces="fourmin" ' + _key("ssh-rsa", b"\3", b"\x40" * 384),
    "RSA padded to 3072": 'lab namespaces="fourmin" '
    + _key("ssh-rsa", b"\3", b"\0" * 128 + b"\x80" * 256),
    "a key with more": 'lab namespaces="fourmin" ' + _key("ssh-ed25519", b"k" * 32, b"more"),
    "no base64": 'lab namespaces="fourmin" ssh-ed25519 A!',
    "nothing behind": 'lab namespaces="fourmin"',
    "an escape": f'lab namespaces="fourmin" {ED25519} \x1b[2J',
    "a carriage return": f'lab namespaces="fourmin" {ED25519} a\rlab cert-authority {ED25519}',
}


@pytest.mark.parametrize("line", FITTING.values(), ids=list(FITTING))
def test_a_line_that_fits(line: str) -> None:
    keys, wrong = read_signers(f"# of the lab\n\n{line}\n".encode(), "lab")
    assert wrong == []
    assert [key.split() for key in keys] == [line.split()[:4]]


@pytest.mark.parametrize("line", WRONG.values(), ids=list(WRONG))
def test_a_line_that_does_not_fit_is_named_and_gives_no_key(line: str) -> None:
    keys, wrong = read_signers(f"{FITTING['plain']}\n{line}\n".encode(), "lab")
    assert [number for number, _ in wrong] == [2]
    assert len(keys) == 1


@pytest.mark.parametrize("data", [b"", b"# none\n", b"\xff\xfe\n"])
def test_a_file_without_a_key_does_not_fit(data: bytes) -> None:
    assert [number for number, _ in read_signers(data, "lab")[1]] == [1]


@pytest.mark.parametrize("options", [[], ["ecdsa", "-b", "384"], ["rsa", "-b", "3072"]])
def test_a_signature_is_checked(options: list[str]) -> None:
    key, other = make_key("-".join(["one", *options]), *options), make_key("other")
    signers = line_of("lab", key).encode()
    made = sign(key, MESSAGE)
    assert is_signature(made)
    assert refusal(signers, "lab", MESSAGE, made) == ""
    assert refusal(signers, "lab", MESSAGE, signature(MESSAGE, key)) == ""
    assert "not signed" in refusal(signers, "lab", MESSAGE + b"x", made)
    assert "not signed" in refusal(signers, "lab", MESSAGE, signature(MESSAGE, other))
    assert "not signed" in refusal(signers, "lab", MESSAGE, signature(MESSAGE, key, "git"))
    assert "not signed" in refusal(line_of("rival", key).encode(), "lab", MESSAGE, made)
    assert "not signed" in refusal(b"", "lab", MESSAGE, made)
    for other_bytes in (b"", made[:-1], made + b"x\n", b"\n" + made, made * 2):
        assert "no signature" in refusal(signers, "lab", MESSAGE, other_bytes)


def test_a_line_that_does_not_fit_lets_nobody_sign() -> None:
    key = make_key("one")
    signers = line_of("lab", make_key("other")) + line_of("*", key)
    assert refusal(signers.encode(), "lab", MESSAGE, signature(MESSAGE, key))


def test_a_submitter_called_like_an_option() -> None:
    key = make_key("one")
    made = signature(MESSAGE, key)
    assert refusal(line_of("-Y", key).encode(), "-Y", MESSAGE, made) == ""
    assert refusal(line_of("-Y", key).encode(), "-n", MESSAGE, made)


def test_a_key_that_signs_nothing(tmp_path: Path) -> None:
    for key in (tmp_path / "none", tmp_path / "-Y"):
        with pytest.raises(FourminError, match="did not sign"):
            sign(key, MESSAGE)


def _program(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "ssh-keygen"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'unknown option -- Y\nusage: ssh-keygen' >&2; exit 1", "knows no signatures"),
        ("sleep 60", "cannot verify"),
    ],
)
def test_a_program_that_cannot_tell_proves_nothing(
    script: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key("one")
    made = signature(MESSAGE, key)
    _program(tmp_path, script, monkeypatch)
    monkeypatch.setattr(signatures, "_VERIFY_SECONDS", 1)
    with pytest.raises(FourminError, match=told):
        refusal(line_of("lab", key).encode(), "lab", MESSAGE, made)


def test_the_environment_of_the_check_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key("one")
    made = signature(MESSAGE, key)
    monkeypatch.setenv("SSH_AUTH_SOCK", "/somewhere")
    _program(tmp_path, f"env > {tmp_path}/seen", monkeypatch)
    assert refusal(line_of("lab", key).encode(), "lab", MESSAGE, made) == ""
    seen = {line.partition("=")[0] for line in (tmp_path / "seen").read_text().splitlines()}
    assert seen - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH"}
