"""Challenges and statements beside submissions: whose word counts, and how it is shown."""

from __future__ import annotations

import json
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attack import errors, validate
from campaign_factory import make_campaign, system_description
from git_history import History
from signing import line_of, make_key, signature
from tamper import apply

from fourmin.base.canonical import canonical_bytes
from fourmin.base.errors import FourminError
from fourmin.base.files import json_bytes
from fourmin.campaign import challenge as auditing
from fourmin.campaign.proof import unpack
from fourmin.ledger import registered
from fourmin.ledger.challenge import segments_of
from fourmin.report.collect import collect_all
from fourmin.rules.engine import load_campaign

DAY = 86_400
AUDITED = "audited (training replayed; times as claimed)"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which a deterministic campaign of `self` landed, and `aud` is an auditor."""
    root = tmp_path / "root"
    auditors = line_of("aud", make_key("aud")).encode()
    history = History(root)
    place = root / "submissions" / "self" / "box"
    make_campaign(
        place / "digits", submitter="self", system_name="box", name="c",
        configuration={"deterministic": True},
    )  # fmt: skip
    description = json_bytes(system_description("self", "box"))
    history.commit({"submissions/self/box/system.json": description, "rules/auditors": auditors})
    monkeypatch.setattr(registered, "load_auditors", lambda: auditors)
    return root


def campaign(root: Path) -> Path:
    return root / "submissions" / "self" / "box" / "digits" / "c"


def challenged(root: Path, who: str = "aud", *, beacon: bool = False) -> Path:
    view = load_campaign(campaign(root))
    return auditing.challenge(view, who, root / "audits", make_key(who), beacon=beacon)


def stated(root: Path, who: str = "aud", outcome: str = "audited") -> Path:
    """A challenge that landed, and the statement that answers it."""
    asked = json.loads(challenged(root, who).read_bytes())
    History.at(root).commit({})
    return auditing.state_outcome(root / "audits", asked, outcome, "0.1.0", make_key(who))


def said(root: Path, *arguments: str) -> tuple[int, set[str]]:
    code, told = validate(root, *arguments)
    return code, errors(told)


def words(root: Path) -> list[str]:
    (shown,) = collect_all([root / "submissions"])
    assert shown.valid
    return [word for word in shown.evidence if "audit" in word or "challenge" in word]


def sign_anew(path: Path, key: str, **changes: Any) -> None:
    """Sign a file by hand, as docs/security.md says."""
    content = {**json.loads(path.read_bytes()), **changes}
    content.pop("signature")
    message = b"fourmin-audit-v1\n" + canonical_bytes(content) + b"\n"
    made = signature(message, make_key(key)).decode()
    path.write_bytes(json_bytes({**content, "signature": made}))


def test_a_challenge_and_the_statement_that_answers_it(root: Path) -> None:
    path = challenged(root)
    assert said(root, "--base", "main") == said(root) == (0, set())
    assert words(root) == ["challenged"]
    with pytest.raises(FourminError, match="is there already"):
        challenged(root)
    History.at(root).commit({})
    sign_anew(path, "aud")  # the documented bytes are what was signed
    assert said(root)[0] == 0
    History.at(root).git("checkout", "--quiet", ".")
    asked = json.loads(path.read_bytes())
    auditing.state_outcome(root / "audits", asked, "audited", "0.1.0", make_key("aud"))
    assert said(root, "--base", "main") == said(root) == (0, set())
    assert words(root) == [AUDITED]


def test_an_answer_that_does_not_come(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    challenged(root)
    for days, word in ((40, "challenge unanswered"), (20, "challenged")):
        date = f"{int(time.time()) - days * DAY} +0000"
        monkeypatch.setenv("GIT_COMMITTER_DATE", date)
        History.at(root).commit({}, *(["--amend"] if days == 20 else []))
        assert words(root) == [word]


@pytest.mark.parametrize(
    ("outcome", "word"),
    [("close", "audit close"), ("undecided", "audit undecided"), ("differs", "audit differs")],
)
def test_what_is_no_audit_is_not_called_so(root: Path, outcome: str, word: str) -> None:
    stated(root, outcome=outcome)
    (told,) = words(root)
    assert told.startswith(word)


def test_an_auditor_without_a_key_claims(root: Path) -> None:
    stated(root, "stranger")
    assert said(root) == (0, set())
    assert words(root) == ["audit claimed (not proved who says so)"]
    assert said(root, "--base", "main~1") == (1, {"SUB029"})


def test_without_ssh_keygen_nothing_is_proved(root: Path, monkeypatch: Any) -> None:
    stated(root)
    monkeypatch.setenv("PATH", str(root))
    monkeypatch.setattr("fourmin.ledger.signatures.shutil.which", lambda _: None)
    assert words(root) == ["audit claimed (not proved who says so)"]


def self_written(root: Path) -> None:
    """By the submitter, who takes an auditor's folder of his own name."""
    path = stated(root)
    own = path.parents[1] / "SELF"
    os.rename(path.parent, own)
    for name in (f"{path.stem}.challenge.json", path.name):
        sign_anew(own / name, "lab", auditor="SELF")


def forged(root: Path) -> None:
    """In the auditor's name, by another key."""
    sign_anew(stated(root), "lab")


def unsigned(root: Path) -> None:
    path = stated(root)
    content = json.loads(path.read_bytes())
    content.pop("signature")
    path.write_bytes(json_bytes(content))


def copied_from_another_auditor(root: Path) -> None:
    path = stated(root)
    other = path.parents[1] / "other"
    other.mkdir()
    for name in (f"{path.stem}.challenge.json", path.name):
        (other / name).write_bytes((path.parent / name).read_bytes())


def copied_from_another_campaign(root: Path) -> None:
    path = stated(root)
    make_campaign(
        root / "submissions" / "self" / "box" / "digits", submitter="self", system_name="box",
        name="d", nonce="0d" * 16, created_ms=1_700_100_000_000, beacon="6e" * 32,
        configuration={"deterministic": True},
    )  # fmt: skip
    digest = load_campaign(root / "submissions" / "self" / "box" / "digits" / "d").digest
    for end in (".challenge.json", ".json"):
        copy = path.with_name(f"{digest}{end}")
        copy.write_bytes(path.with_name(f"{path.stem}{end}").read_bytes())


def edited(root: Path) -> None:
    path = stated(root, outcome="differs")
    path.write_text(path.read_text().replace('"differs"', '"audited"'))


def edited_by_nobody_known(root: Path) -> None:
    """Also where nobody knows whose key it is."""
    path = stated(root, "stranger", outcome="differs")
    path.write_text(path.read_text().replace('"differs"', '"audited"'))


def of_a_challenge_of_its_own(root: Path) -> None:
    """A nonce that was chosen after the challenge had landed."""
    path = stated(root)
    sign_anew(path, "aud", nonce="9" * 64)


def with_fewer_segments(root: Path) -> None:
    path = challenged(root)
    segments = json.loads(path.read_bytes())["segments"]
    sign_anew(path, "aud", segments={**segments, "1": segments["1"][1:]})


def by_a_beacon_that_is_none(root: Path) -> None:
    sign_anew(challenged(root), "aud", source="beacon")


def at_a_time_that_nobody_can_sign(root: Path) -> None:
    """It has no canonical JSON."""
    path = challenged(root)
    content = {**json.loads(path.read_bytes()), "created_ms": 10**18}
    path.write_bytes(json_bytes(content))


@pytest.mark.parametrize(
    "forge",
    [
        self_written, forged, unsigned, copied_from_another_auditor, copied_from_another_campaign,
        edited, edited_by_nobody_known, of_a_challenge_of_its_own, with_fewer_segments,
        by_a_beacon_that_is_none, at_a_time_that_nobody_can_sign,
    ],
    ids=lambda forge: forge.__name__,
)  # fmt: skip
def test_a_word_that_is_not_the_auditor_s(forge: Callable[[Path], None], root: Path) -> None:
    forge(root)
    assert said(root) == (1, {"SUB028"})
    shown = [one for one in collect_all([root / "submissions"]) if one.path == str(campaign(root))]
    told = [word for one in shown for word in one.evidence if "audit" in word]
    assert told in ([], [AUDITED] if "copied" in forge.__name__ else [])
    assert all(one.valid for one in shown), "whoever writes it does not spoil the campaign"


def test_a_statement_comes_after_its_challenge(root: Path) -> None:
    challenged(root)
    asked = json.loads(next((root / "audits" / "aud").glob("*")).read_bytes())
    auditing.state_outcome(root / "audits", asked, "audited", "0.1.0", make_key("aud"))
    assert said(root, "--base", "main") == (1, {"SUB029"})


def test_a_challenge_by_the_beacon(root: Path) -> None:
    with pytest.raises(FourminError, match="no beacon after this ledger landed"):
        challenged(root, beacon=True)
    expected = History.at(root).commit({"rules/beacon": b"next\n"})
    path = challenged(root, beacon=True)
    assert json.loads(path.read_bytes())["nonce"] == expected
    assert said(root) == (0, set())


def test_nobody_audits_himself(root: Path) -> None:
    with pytest.raises(FourminError, match="no auditor of this campaign"):
        challenged(root, "Self")


@pytest.mark.parametrize("epoch", [1000, [12]])
def test_an_epoch_without_end_is_no_segment_to_draw_from(root: Path, epoch: object) -> None:
    """A log may say anything, and a file beside it asks for the segments up to there."""
    told = {"file": "run-1/events.log", "key": "state", "nth": -1}
    apply(campaign(root), [told | {"set": "/metadata/epoch_num", "to": epoch}])
    asked = segments_of(load_campaign(campaign(root)), "0" * 64)
    assert max(map(max, asked.values())) <= 12


def _header(name: str, kind: bytes, data: bytes) -> bytes:
    told = tarfile.TarInfo(name)
    told.type, told.size = kind, len(data)
    return told.tobuf(tarfile.USTAR_FORMAT) + data.ljust(-(-len(data) // 512) * 512, b"\0")


@pytest.mark.parametrize(
    "headers",
    [
        _header("p", tarfile.XHDTYPE, b"21 GNU.sparse.size=x\n"),
        _header("name", tarfile.GNUTYPE_LONGNAME, b"name\0") * 3000,
    ],
)  # fmt: skip
def test_a_proof_whose_headers_make_no_sense_is_none(
    headers: bytes, root: Path, tmp_path: Path
) -> None:
    view, proof = load_campaign(campaign(root)), tmp_path / "proof.tar"
    proof.write_bytes(headers + _header("run-1/epoch-1.state", tarfile.REGTYPE, b"state"))
    with pytest.raises(FourminError, match="is no proof"):
        unpack(proof, {"segments": segments_of(view, "0" * 64)}, view, tmp_path)
