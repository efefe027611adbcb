"""What auditors say of a campaign, and what that is worth.

Their keys are the maintainers': `rules/auditors`, in the format of a submitter's allowed_signers,
beside the rulesets of this installation, or with `--base` in the base commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.files import rulesets_folder
from fourmin.base.values import mapping
from fourmin.ledger.campaign import LEDGER_FILE
from fourmin.ledger.challenge import (
    AUDITED,
    BEACON,
    CLOSE,
    DIFFERS,
    UNDECIDED,
    audit_name,
    segments_of,
    signed_bytes,
)
from fourmin.ledger.landings import Landings
from fourmin.ledger.signatures import read_signers, refusal
from fourmin.ledger.view import CampaignView
from fourmin.results.folder import JsonFile, read_bytes
from fourmin.results.places import AUDITS, MAX_AUDIT_BYTES, SUBMISSIONS
from fourmin.results.schema import schema_errors
from fourmin.ruleset import CURRENT

AUDITORS_FILE = "auditors"
ANSWER_DAYS = 30
_DAY_MS = 86_400_000
_WORDS = {
    AUDITED: "audited (training replayed; times as claimed)",
    CLOSE: "audit close (first steps replayed on other devices; times as claimed)",
    UNDECIDED: "audit undecided (on other devices too near to the target)",
    DIFFERS: "audit differs (a replay did not come to what the log says)",
}


@dataclass(frozen=True)
class AuditFile:
    """One file of an auditor about a campaign; `outcome` is empty for a challenge."""

    folder: str
    name: str
    outcome: str = ""
    since_ms: int = 0
    """When it landed on the base branch; where that is not known, when it says it was made."""
    wrong: str = ""
    """Why it is worth nothing; empty where it may be what it says."""
    unproved: str = ""
    """Why nobody here knows that it is the auditor's."""


def load_auditors() -> bytes:
    """The auditors' keys of this installation."""
    data = read_bytes(rulesets_folder() / AUDITORS_FILE)
    return b"" if isinstance(data, str) else data


def auditors_in(keys: bytes) -> set[str]:
    """The names that have a key."""
    return {line.split()[0] for line in read_signers(keys, None)[0]}


def folder_of_audits(campaign: CampaignView) -> Path | None:
    """The folder `audits` beside the campaign's root of submissions, where there is one."""
    if campaign.folder is None or not campaign.place:
        return None
    root = campaign.folder.absolute().parents[len(campaign.place) - 1]
    beside = root.parent / AUDITS
    return beside if root.name == SUBMISSIONS and beside.is_dir() else None


def audits_of(
    campaign: CampaignView, keys: bytes, landings: Landings | None, strict: bool
) -> Iterator[AuditFile]:
    """What every auditor says of a campaign. With `strict` FourminError is raised where signatures
    cannot be looked at.
    """
    folder = folder_of_audits(campaign)
    if folder is None:
        return
    for auditor in sorted(os.listdir(folder)):
        asked: Mapping[str, Any] = {}
        for statement in (False, True):
            name = audit_name(auditor, campaign.digest, statement=statement)
            if not os.path.lexists(folder / name):
                continue
            data = read_bytes(folder / name, MAX_AUDIT_BYTES)
            said = {} if isinstance(data, str) else mapping(JsonFile(name, data).value)
            wrong = against(campaign, auditor, said, asked if statement else None, landings)
            found = AuditFile(str(folder), name, str(said.get("outcome", "")), wrong=wrong)
            if not wrong and isinstance(data, bytes):
                found = _proved(found, auditor, said, keys, strict)
                landing = landings and landings.of(f"{AUDITS}/{name}", data)
                since_ms = landing.time_ms if landing else said["created_ms"]
                found = replace(found, since_ms=since_ms)
            if not statement and not found.wrong:
                asked = said
            yield found


def against(
    campaign: CampaignView,
    auditor: str,
    said: Mapping[str, Any],
    asked: Mapping[str, Any] | None,
    landings: Landings | None,
) -> str:
    """Why a file is not what it should be; `asked` is the challenge that a statement answers."""
    errors = schema_errors(CURRENT, "audit", said, "challenge" if asked is None else "statement")
    if errors:
        return str(errors[0])
    if said["auditor"] != auditor:
        return f"it is of the auditor {said['auditor']}"
    if auditor.casefold() == campaign.submitter.casefold():
        return "auditor and submitter are the same"
    if (said["campaign"], said["head"]) != (campaign.digest, campaign.head):
        return "it is of another campaign, or of another ledger"
    if not campaign.history.close or said["segments"] != segments_of(campaign, said["nonce"]):
        return "other segments than plan, closed ledger and nonce give"
    if asked is not None and said["nonce"] != asked.get("nonce"):
        return "no valid challenge of this auditor has this nonce"
    if said["source"] == BEACON and landings:
        beacon = beacon_after(campaign, landings)
        return "" if said["nonce"] == beacon else f"the first beacon after the ledger is {beacon}"
    return ""


def beacon_after(campaign: CampaignView, landings: Landings) -> str | None:
    """The first beacon after the campaign's ledger, as it is, landed; None where there is none."""
    place = "/".join((SUBMISSIONS, *map(str, campaign.planned_place), LEDGER_FILE))
    landing = landings.of(place, campaign.files.get(LEDGER_FILE) or b"")
    return None if landing is None else landing.beacon


def _proved(
    file: AuditFile, auditor: str, said: Mapping[str, Any], keys: bytes, strict: bool
) -> AuditFile:
    """The file with what its signature is worth."""
    known = auditor in auditors_in(keys)
    signature = str(said.get("signature", "")).encode() or None
    try:
        why = refusal(keys if known else None, auditor, signed_bytes(said), signature)
    except FourminError as error:
        if strict:
            raise
        return replace(file, unproved=error.what)
    if why:
        return replace(file, wrong=f"the signature is {why}")
    unknown = "" if known else f"{auditor} has no key in rules/{AUDITORS_FILE}"
    return replace(file, unproved=unknown)


def audit_words(audits: Iterable[AuditFile], now_ms: int) -> tuple[str, ...]:
    """What a reader is told of them, each word once."""
    right = [one for one in audits if not one.wrong]
    answered = {one.name.partition("/")[0] for one in right if one.outcome}
    words = []
    for one in right:
        if one.outcome:
            claimed = "audit claimed (not proved who says so)"
            words.append(claimed if one.unproved else _WORDS[one.outcome])
        elif not one.unproved and one.name.partition("/")[0] not in answered:
            late = now_ms - one.since_ms > ANSWER_DAYS * _DAY_MS
            words.append("challenge unanswered" if late else "challenged")
    return tuple(dict.fromkeys(words))
