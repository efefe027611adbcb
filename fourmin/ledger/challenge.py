"""Challenges of audits, and the statements that answer them: two files of one auditor.

    audits/<auditor>/<plan's digest>.challenge.json    which epochs are to be trained again
    audits/<auditor>/<plan's digest>.json              what came of it

An epoch is a segment: from the state before it to the state after it. Which ones are asked for
follows from plan, closed ledger and a value that its submitter could not know when it was closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from fourmin.base.canonical import canonical_bytes, sha256_hex
from fourmin.base.values import mapping
from fourmin.ledger.view import CampaignView, RunView
from fourmin.log import keys
from fourmin.log.timeline import Timeline

NONCE, BEACON = "nonce", "beacon"
"""Where the chance is from: the auditor, or the base branch after the ledger landed."""
AUDITED, CLOSE, UNDECIDED, DIFFERS = "audited", "close", "undecided", "differs"
"""What comes of a proof: the same bits; on another kind of device the same within tolerances,
without or with the target within them; something else."""
SHORT_MINUTES = 10.0
"""All segments of a run that took no longer are asked for."""
SHARE = 9, 20
"""Of a longer one this share of the segments before the last, which is always asked for: 45%, so
that of five runs with one false segment each one is found with 1 - 0.55^5 = 95%."""

Segments = dict[str, list[int]]
"""Epochs by run, as JSON has them."""


def audit_name(auditor: str, digest: str, *, statement: bool) -> str:
    """The path of an auditor's file below the folder of audits."""
    return f"{auditor}/{digest}{'' if statement else '.challenge'}.json"


def states_of(timeline: Timeline | None) -> dict[int, Mapping[str, Any]]:
    """What a run's log says of its states, by epoch; empty where it was not deterministic."""
    records = () if timeline is None else timeline.all(keys.STATE)
    told = ((record.metadata.get(keys.EPOCH_NUM), mapping(record.value)) for record in records)
    return {epoch: value for epoch, value in told if isinstance(epoch, int)}


def runs_to_replay(campaign: CampaignView) -> dict[int, RunView]:
    """The runs that came to their end and told their states, one for each epoch up to the last."""
    whole = (run for run in campaign.runs if run.number is not None and run.whole)
    told = ((run, states_of(run.timeline)) for run in whole)
    return {run.number or 0: run for run, of in told if max(of, default=0) == len(of) - 1 > 0}


def segments_of(campaign: CampaignView, nonce: str) -> Segments:
    """The segments that a challenge with this value asks for."""
    runs = runs_to_replay(campaign)
    lengths = {
        number: (max(states_of(run.timeline)), (run.facts.minutes or 0.0) <= SHORT_MINUTES)
        for number, run in runs.items()
    }
    return draw(campaign.digest, campaign.head, nonce, lengths)


def draw(plan: str, head: str, nonce: str, lengths: Mapping[int, tuple[int, bool]]) -> Segments:
    """Of each run, given its epochs and whether all are asked for: the epochs, in order.

    Those before the last are sorted by SHA-256 of the challenge, the run and themselves.
    """
    challenge = sha256_hex(f"fourmin-challenge-v1\n{plan}\n{head}\n{nonce}\n".encode())
    chosen = {}
    for run, (epochs, every) in sorted(lengths.items()):
        ranked = sorted(range(1, epochs), key=partial(_rank, challenge, run))
        most = len(ranked) if every else -(-len(ranked) * SHARE[0] // SHARE[1])
        chosen[str(run)] = sorted([*ranked[:most], epochs])
    return chosen


def _rank(challenge: str, run: int, epoch: int) -> str:
    return sha256_hex(f"{challenge}\n{run}\n{epoch}\n".encode())


def signed_bytes(content: Mapping[str, Any]) -> bytes:
    """What an auditor signs of a file: all but the signature, as canonical JSON."""
    told = {name: value for name, value in content.items() if name != "signature"}
    return b"fourmin-audit-v1\n" + canonical_bytes(told) + b"\n"
