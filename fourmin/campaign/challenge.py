"""An auditor's files: the challenge of a closed campaign, and the statement of what came of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fourmin import __version__
from fourmin.base.errors import FourminError
from fourmin.base.files import json_bytes, write_durably
from fourmin.base.text import command
from fourmin.base.values import mapping
from fourmin.ledger.audits import against, beacon_after
from fourmin.ledger.challenge import BEACON, NONCE, audit_name, segments_of, signed_bytes
from fourmin.ledger.git import Repository
from fourmin.ledger.landings import Landings
from fourmin.ledger.signatures import sign
from fourmin.ledger.view import CampaignView
from fourmin.results.folder import JsonFile, read_bytes
from fourmin.results.names import wrong_folder_name
from fourmin.rules.engine import check_view, load_campaign


def load_closed(folder: Path) -> CampaignView:
    """A campaign that could be challenged. Raises FourminError for any other."""
    view = load_campaign(folder)
    look = f"`{command('validate', folder)}` says what is wrong"
    if view.plan is None or not view.history.close:
        raise FourminError(f"no closed campaign in {folder}", next_step=look)
    wrong = next((finding for finding in check_view(view) if finding.fails), None)
    if wrong is not None:
        raise FourminError(f"{folder} is not valid", wrong.text, look)
    if not segments_of(view, ""):
        raise FourminError(
            f"no run of {folder} tells its states",
            "only runs with --set deterministic=true can be trained again from epoch to epoch",
            f"{command('audit', folder)} replays the start of a run",
        )
    return view


def challenge(view: CampaignView, auditor: str, audits: Path, key: Path, *, beacon: bool) -> Path:
    """Draw a challenge, sign it and write it below `audits`.

    The nonce is the system's random bytes, or the first `beacon` after the ledger landed. Raises
    FourminError where there is one already, or no such beacon yet.
    """
    why = wrong_folder_name(auditor)
    if why or auditor.casefold() == view.submitter.casefold():
        raise FourminError(
            f"{auditor!r} is no auditor of this campaign",
            why or "nobody audits himself",
            "--auditor NAME",
        )
    path = audits / audit_name(auditor, view.digest, statement=False)
    if path.exists():
        raise FourminError(
            f"{path} is there already", "a challenge that could be drawn twice could be chosen"
        )
    nonce = _beacon_for(view) if beacon else secrets.token_hex(32)
    content = {
        "schema_version": 1,
        "auditor": auditor,
        "campaign": view.digest,
        "head": view.head,
        "nonce": nonce,
        "source": BEACON if beacon else NONCE,
        "segments": segments_of(view, nonce),
    }
    _write(path, content, key)
    return path


def _beacon_for(view: CampaignView) -> str:
    repository = Repository.around(view.folder or Path())
    found = beacon_after(view, Landings(repository)) if repository else None
    if found is None:
        raise FourminError(
            "there is no beacon after this ledger landed",
            "the base branch here has no later commit that changes rules/beacon alone",
            "fetch it, or wait for the next one; without --beacon the nonce is your own",
        )
    return found


def read_challenge(path: Path, view: CampaignView) -> Mapping[str, Any]:
    """A challenge of this campaign. Raises FourminError for any other file."""
    data = read_bytes(path)
    said = {} if isinstance(data, str) else mapping(JsonFile(path.name, data).value)
    wrong = (
        f"the file is {data}"
        if isinstance(data, str)
        else against(view, str(said.get("auditor")), said, None, None)
    )
    if wrong:
        raise FourminError(f"{path} is no challenge of {view.path}", wrong)
    return said


def state_outcome(
    audits: Path, asked: Mapping[str, Any], outcome: str, run_version: str, key: Path
) -> Path:
    """Sign and write what came of a challenge."""
    path = audits / audit_name(asked["auditor"], asked["campaign"], statement=True)
    content = {**asked, "outcome": outcome, "run_fourmin": run_version}
    _write(path, content, key)
    return path


def _write(path: Path, content: Mapping[str, Any], key: Path) -> None:
    made = {**content, "created_ms": time.time_ns() // 1_000_000, "fourmin": __version__}
    made.pop("signature", None)
    made["signature"] = sign(key, signed_bytes(made)).decode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, json_bytes(made))
