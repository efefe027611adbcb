"""What the commands sign, and what they refuse before anything is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from campaign_factory import make_campaign
from git_history import History
from signing import SIGNATURES, allow, make_key, messages, sign, signature
from typer.testing import CliRunner, Result

from fourmin.base.errors import FourminError
from fourmin.cli.main import app
from fourmin.ledger.campaign import Campaign
from fourmin.ledger.signatures import refusal
from fourmin.rules.engine import check


@pytest.fixture
def submissions(tmp_path: Path) -> Path:
    """Those of a repository in which `lab` signs."""
    history = History(tmp_path / "repository")
    (history.root / "submissions/lab").mkdir(parents=True)
    allow(history.root / "submissions", "lab", make_key("lab"))
    history.commit({})
    return history.root / "submissions"


def run(*arguments: object) -> Result:
    words = [str(one) for one in arguments]
    return CliRunner().invoke(app, words, catch_exceptions=False)


def register(submissions: Path, *more: object) -> Result:
    return run("register", "--preset", "digits", "--submitter", "lab", "--system", "box",
               "--set", "device=cpu", "--into", submissions, *more)  # fmt: skip


def made(submissions: Path) -> list[Path]:
    return sorted(path.parent for path in submissions.glob("*/*/*/*/campaign.json"))


def is_signed(campaign: Path, *names: str) -> bool:
    """Whether these signatures, and no others, are there and right."""
    keys = (campaign.parents[2] / "allowed_signers").read_bytes()
    there = tuple(name for name in SIGNATURES if (campaign / name).exists())
    signed = messages(campaign)
    return there == names and not any(
        refusal(keys, "lab", signed[name], (campaign / name).read_bytes()) for name in names
    )


def test_a_plan_is_signed_when_it_is_registered(submissions: Path) -> None:
    with pytest.raises(FourminError, match="lab signs, and no key was given") as raised:
        register(submissions)
    assert "--signing-key" in raised.value.next_step
    with pytest.raises(FourminError, match="none of the keys of lab"):
        register(submissions, "--signing-key", make_key("nobody"))
    assert not [path for path in submissions.rglob("*") if path.is_file()][1:]
    register(submissions, "--signing-key", make_key("lab"))
    (folder,) = made(submissions)
    assert is_signed(folder, "campaign.sig")
    assert check([submissions], base="main").ok

    # And its end, when it is given up.
    with pytest.raises(FourminError, match="lab signs"):
        run("abandon", folder)
    with pytest.raises(FourminError, match="no signing key"):
        run("abandon", folder, "--signing-key", folder / "none")
    assert not Campaign(folder).closed
    run("abandon", folder, "--signing-key", make_key("lab").with_suffix(".pub"))
    assert Campaign(folder).closed
    assert is_signed(folder, *SIGNATURES)
    assert check([submissions], base="main").ok

    # A signature that was lost with the power is made up for; a second end is none.
    (folder / "ledger.sig").unlink()
    run("abandon", folder, "--signing-key", make_key("lab"))
    assert is_signed(folder, *SIGNATURES)
    with pytest.raises(FourminError, match="has ended already"):
        run("abandon", folder, "--signing-key", make_key("lab"))


def test_what_is_missing_is_signed_when_a_campaign_is_submitted(
    submissions: Path, tmp_path: Path
) -> None:
    own = make_campaign(tmp_path / "results", submitter="lab", system_name="box")
    with pytest.raises(FourminError, match="lab signs, and no key was given"):
        run("submit", own, "--into", submissions)
    with pytest.raises(FourminError, match="none of the keys of lab"):
        run("submit", own, "--into", submissions, "--signing-key", make_key("nobody"))
    assert made(submissions) == []
    told = run("submit", own, "--into", submissions, "--signing-key", make_key("lab")).stdout
    assert "campaign.sig, ledger.sig" in " ".join(told.split())
    (folder,) = made(submissions)
    assert is_signed(folder, *SIGNATURES)
    assert not list(own.glob("*.sig"))
    # Again, without a key: nothing is missing.
    description = submissions / "lab/box/system.json"
    text = description.read_text()
    description.write_text(text.replace('"host_storage_type": ""', '"host_storage_type": "SSD"'))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "signed with" not in run("submit", own, "--into", submissions).stdout
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_plan_that_was_signed_when_it_was_registered(submissions: Path, tmp_path: Path) -> None:
    """By a key that may be another one by now, whose signature stays."""
    own = make_campaign(tmp_path / "results", submitter="lab", system_name="box")
    there = submissions / "lab/box/digits" / own.name
    there.mkdir(parents=True)
    shutil.copy(own / "campaign.json", there)
    old = signature(messages(own)["campaign.sig"], make_key("old"))
    (there / "campaign.sig").write_bytes(old)
    told = run("submit", own, "--into", submissions, "--signing-key", make_key("lab")).stdout
    assert "signed with" in told
    assert (there / "campaign.sig").read_bytes() == old
    assert (there / "ledger.sig").exists()


def test_nothing_is_asked_of_who_does_not_sign(submissions: Path, tmp_path: Path) -> None:
    own = make_campaign(tmp_path / "results", submitter="rival", system_name="rack")
    run("submit", own, "--into", submissions)
    (folder,) = made(submissions)
    assert not list(folder.glob("*.sig"))
    other = make_campaign(tmp_path / "results", submitter="lab", name="begun", killed_in=2)
    run("abandon", other)  # where nobody has keys
    assert Campaign(other).closed


def test_who_signs_before_there_are_keys(tmp_path: Path) -> None:
    own = make_campaign(tmp_path / "results", submitter="lab", system_name="box")
    sign(own, make_key("lab"), ["campaign.sig"])
    into = tmp_path / "submissions"
    run("submit", own, "--into", into, "--signing-key", make_key("lab"))
    (folder,) = made(into)
    allow(into, "lab", make_key("lab"))
    assert is_signed(folder, *SIGNATURES)
