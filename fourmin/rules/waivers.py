"""Waivers: errors that the maintainers let stand, each for one ledger, one code, one reason.

They live in `rules/waivers.toml`, beside the rulesets and never in a submission:

    [[waiver]]
    code = "SYS003"
    campaign = "<SHA-256 of campaign.json, 64 hexadecimal digits>"
    head = "<SHA-256 of the ledger's last line, without its line end>"
    reason = "a typing error in a message was corrected between run 2 and run 3"
    by = "a maintainer"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.files import rulesets_folder
from fourmin.base.mishaps import told
from fourmin.base.toml import MALFORMED, tomllib
from fourmin.rules.rule import ERROR, Finding
from fourmin.rules.verdict import owner_of

WAIVERS_FILE = "waivers.toml"
_FIELDS = {"code", "campaign", "head", "reason", "by"}
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_CODE = re.compile(r"[A-Z]{3}[0-9]{3}\Z")


@dataclass(frozen=True)
class Waiver:
    """One error that stands: which rule, of which campaign (its digest) with which ledger (its
    head), why, and who says so.
    """

    code: str
    campaign: str
    head: str
    reason: str
    by: str


def load_waivers(path: Path | None = None) -> tuple[Waiver, ...]:
    """The waivers of a file, by default those beside the rulesets; none where there is no file.

    Raises FourminError for a file that is not as it should be: a waiver that is misread could
    let anything pass.
    """
    file = path or rulesets_folder() / WAIVERS_FILE
    try:
        return parse_waivers(file.read_bytes(), str(file))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise FourminError(f"cannot read {file}", error.strerror or str(error)) from None


def parse_waivers(data: bytes, name: str) -> tuple[Waiver, ...]:
    """The waivers in `data`; `name` is for the error. Raises FourminError as `load_waivers`."""
    step = "see the head of fourmin.rules.waivers"
    with told(f"{name} is not a list of waivers", step, MALFORMED):
        content = tomllib.loads(data.decode("utf-8"))
        if set(content) - {"waiver"} or not isinstance(content.get("waiver", []), list):
            raise ValueError("only [[waiver]] tables belong into it")
        return tuple(_waiver(item) for item in content.get("waiver", []))


def _waiver(item: Any) -> Waiver:
    if not isinstance(item, dict) or set(item) != _FIELDS:
        raise ValueError(f"a waiver has the fields {', '.join(sorted(_FIELDS))}")
    if not all(isinstance(value, str) and value.strip() for value in item.values()):
        raise ValueError("every field of a waiver is a text that is not empty")
    digests = (item["campaign"], item["head"])
    if not _CODE.match(item["code"]) or not all(map(_DIGEST.match, digests)):
        raise ValueError("a waiver names a rule's code, a campaign's digest and its ledger's head")
    return Waiver(**item)


def apply_waivers(
    findings: Sequence[Finding],
    campaigns: Mapping[str, tuple[str, str]],
    waivers: Sequence[Waiver],
) -> list[Finding]:
    """The findings, with those marked that a waiver covers.

    `campaigns` gives each campaign's digest and its ledger's head by its path.
    """
    granted = {(waiver.code, waiver.campaign, waiver.head): waiver for waiver in waivers}
    if not granted:
        return list(findings)
    marked = []
    for finding in findings:
        owner = owner_of(finding.path, campaigns) if finding.severity == ERROR else None
        waiver = None if owner is None else granted.get((finding.code, *campaigns[owner]))
        if waiver is not None:
            finding = replace(finding, waived=f"{waiver.reason} ({waiver.by})")
        marked.append(finding)
    return marked
