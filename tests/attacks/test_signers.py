"""Submitters who sign, honestly, and what is said where nothing can be proved."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from attack import errors, validate
from attacks_in_git import _next
from attacks_on_signers import abandoned, planned, signed, signing
from forger import forge
from signing import allow, line_of, make_key, sign
from worlds import commit, copy_tree, git, land, turn_beacon

from fourmin.base.errors import FourminError
from fourmin.report.collect import collect_all
from fourmin.rules.engine import check


def is_valid(root: Path) -> None:
    """As the change that it is, and by itself."""
    for arguments in ([], ["--base", "main"]):
        code, said = validate(root / "submissions", *arguments)
        assert (code, errors(said)) == (0, set()), said["findings"]
        assert {one["status"] for one in said["checked"]} == {"valid"}


def evidence(root: Path, campaign: Path) -> bool:
    """Whether a report says that a campaign is signed."""
    (shown,) = [one for one in collect_all([root / "submissions"]) if one.path == str(campaign)]
    return "signed" in shown.evidence


def test_keys_alone(root: Path) -> None:
    """And what landed before there were any needs no signature."""
    allow(root / "submissions", "lab", make_key("lab"))
    is_valid(root)
    land(root)
    is_valid(root)


def test_a_campaign_and_when_it_has_landed(root: Path) -> None:
    folder = signed(root)
    is_valid(root)
    land(root)
    is_valid(root)
    assert evidence(root, folder)
    assert not any(evidence(root, one) for one in folder.parent.iterdir() if one != folder)


def test_a_campaign_of_somebody_else_who_does_not_sign(root: Path) -> None:
    signing(root)
    allow(root / "submissions", "rival", make_key("rival"))
    land(root)
    sign(_next(root), make_key("lab"))
    commit(root)
    is_valid(root)


def test_a_registered_campaign(root: Path) -> None:
    key, whole = signing(root), _next(root, 20)
    kept = root.parent / "kept"
    shutil.copytree(whole, kept)
    shutil.rmtree(whole)
    sign(planned(root, 20), key, ["campaign.sig"])
    is_valid(root)
    land(root)
    is_valid(root)
    told = {"beacon": turn_beacon(root), "registration": "registered"}
    shutil.copytree(kept, whole, dirs_exist_ok=True)
    forge(whole, [
        {"file": "ledger.jsonl", "line": 2, "set": f"/data/{name}", "to": value}
        for name, value in told.items()
    ])  # fmt: skip
    sign(whole, key, ["ledger.sig"])
    is_valid(root)
    land(root)
    assert evidence(root, whole)


def test_keys_that_change(root: Path) -> None:
    """What the old key signed stays proved; a plan's end may be signed by another than its plan."""
    old, new = signing(root), make_key("new")
    first = sign(_next(root), old)
    second = sign(planned(root, 11), old, ["campaign.sig"])
    land(root)
    allow(root / "submissions", "lab", new)
    is_valid(root)
    land(root)
    abandoned(second)
    sign(second, new, ["ledger.sig"])
    is_valid(root)
    land(root)
    third = sign(_next(root, 12), new)
    land(root)
    is_valid(root)
    assert all(evidence(root, one) for one in (first, second, third))


def test_several_keys_of_every_kind(root: Path) -> None:
    keys = [make_key("lab"), make_key("ecdsa", "ecdsa", "-b", "521"), make_key("rsa", "rsa")]
    text = "# build machines\n\n" + "".join(line_of("lab", key) for key in keys)
    path = root / "submissions/lab/allowed_signers"
    path.write_bytes(text.replace("\n", "\r\n").encode())  # and line ends of Windows
    is_valid(root)
    land(root)
    for number, key in enumerate(keys, start=10):
        assert (sign(_next(root, number), key) / "campaign.sig").stat().st_size < 4096
        land(root)
    is_valid(root)


def test_a_plan_that_landed_before_there_were_keys(root: Path) -> None:
    folder = planned(root)
    land(root)
    key = signing(root)
    abandoned(folder)
    sign(folder, key, ["ledger.sig"])
    is_valid(root)


def test_a_signature_that_was_forgotten_may_follow(root: Path) -> None:
    key = signing(root)
    folder = sign(_next(root), key, ["campaign.sig"])
    land(root)
    assert "LED025" in errors(validate(root / "submissions", "--base", "main")[1])
    sign(folder, key, ["ledger.sig"])
    is_valid(root)


def notes(*arguments: object) -> set[str]:
    """What is said of signatures, where there is no error."""
    code, said = validate(*arguments)
    assert (code, errors(said)) == (0, set())
    return {one["message"] for one in said["findings"] if one["code"] == "LED025"}


def test_nothing_is_proved_without_the_history(root: Path) -> None:
    folder = signed(root)
    land(root)
    git(root.parent, "clone", "--quiet", "--depth", "1", f"file://{root}", "shallow")
    copy_tree(root / "submissions", root.parent / "submissions")
    for tree in (root.parent / "shallow", root.parent):
        (said,) = notes(tree / "submissions")
        assert said.startswith("not proved who signed")
        assert not evidence(tree, tree / folder.relative_to(root))


def _without_ssh_keygen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    git = shutil.which("git")
    assert git is not None
    os.symlink(git, folder / "git")
    monkeypatch.setenv("PATH", str(folder))


def test_without_ssh_keygen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = signed(root)
    land(root)
    _without_ssh_keygen(root.parent / "bin", monkeypatch)
    assert notes(root / "submissions")
    assert not evidence(root, folder)
    with pytest.raises(FourminError, match="ssh-keygen is not installed") as raised:
        check([root / "submissions"], base="main")
    assert raised.value.exit_code == 2


def test_ssh_keygen_is_not_needed_where_nobody_signs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _next(root)
    land(root)
    _without_ssh_keygen(root.parent / "bin", monkeypatch)
    assert check([root / "submissions"], base="main").ok
