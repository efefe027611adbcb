"""How a campaign comes to be on disk, is opened to be run, and is given up."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.files import ensure_writable_folder, require_writable_file, write_durably
from fourmin.campaign.execute import Materials, mishaps_told
from fourmin.campaign.existing import registered_beacon, require_going_on
from fourmin.campaign.naming import names, place_of, require_no_twin
from fourmin.campaign.prepare import Prepared, prepare
from fourmin.campaign.request import Existing, New, Placement, Request
from fourmin.campaign.requirements import Data, get_data, require_dataset
from fourmin.campaign.signing import signer
from fourmin.ledger.campaign import Campaign, require_campaign
from fourmin.ledger.git import Repository
from fourmin.ledger.known import against_memory, earlier_campaigns
from fourmin.ledger.lock import CampaignLock
from fourmin.ledger.signatures import LEDGER_SIGNATURE
from fourmin.ledger.source import package_commit
from fourmin.results.plan import EarlierCampaign, Plan, chips_of
from fourmin.ruleset import CURRENT
from fourmin.system.capture import system_digest
from fourmin.system.privacy import redact
from fourmin.system.software import package_digest


@contextmanager
def opened(
    prepared: Prepared, campaign_file: Path | None = None
) -> Iterator[tuple[Campaign, Materials]]:
    """The campaign, registered now or opened again, with its lock, and what its runs need.

    A new one is named in `campaign_file`. A plan that was merged gets its seeds from the beacon
    after it. Raises FourminError for all that is refused, and where another process
    has the lock.
    """
    prepared.require()
    system, placement = prepared.system, prepared.placement
    assert system is not None
    data = prepared.data or get_data(prepared.benchmark, placement.data_dir)
    if isinstance(prepared.wanted, New):
        ensure_writable_folder(prepared.wanted.results, "results folder")
        if campaign_file is not None:
            require_writable_file(campaign_file, "campaign file")
        plan = _plan(prepared, prepared.wanted.request, data, system)
        folder = Campaign.create(prepared.wanted.results, plan).folder
        if campaign_file is not None:
            write_durably(campaign_file, f"{folder.absolute()}\n".encode())
    else:
        folder = prepared.wanted.folder
    with mishaps_told(folder), CampaignLock(folder):
        campaign = Campaign.reopen(folder)
        # Another command may have ended it meanwhile.
        require_going_on(campaign, system, data)
        if isinstance(prepared.wanted, Existing) and campaign.history.seeds is None:
            campaign.assign_registered_seeds(registered_beacon(campaign, prepared.wanted.base))
        yield campaign, Materials(data, system, placement)


def register(request: Request, placement: Placement, signing_key: Path | None = None) -> Path:
    """Write the plan below the results folder for others to merge; returns the campaign's folder.

    Raises FourminError for all that is refused.
    """
    prepared = prepare(New(request), placement)
    prepared.require()
    if prepared.system is None:
        raise FourminError(
            "a plan describes the machine that it is made on",
            f"launcher {prepared.choice.name} starts workers elsewhere",
            "register where they would run, such as inside an allocation",
        )
    Repository.around(prepared.wanted.results)  # the plan names the branch's campaigns
    data = prepared.data or get_data(prepared.benchmark, placement.data_dir)
    plan = _plan(prepared, request, data, prepared.system)
    place = place_of(plan)
    require_no_twin(prepared.wanted.results, place)
    folder = prepared.wanted.results / place
    sign = signer(folder.parent.parent, plan.submitter, signing_key)
    return Campaign.create(folder, plan, sign, seeds=False).folder


def abandon(folder: Path, reason: str, signing_key: Path | None = None) -> None:
    """Give a campaign up, visibly. One that was given up without a signature is signed.

    Raises FourminError where it has ended already, and where a signature is missing.
    """
    require_campaign(folder)
    with CampaignLock(folder):
        campaign = Campaign.reopen(folder)
        sign = signer(folder.absolute().parent.parent.parent, campaign.plan.submitter, signing_key)
        if sign and campaign.history.abandon and not (folder / LEDGER_SIGNATURE).exists():
            campaign.sign_end(sign)
            return
        if campaign.closed:
            raise FourminError(
                f"the campaign {folder} has ended already", "nothing can be added to its ledger"
            )
        campaign.abandon(reason, sign)


def campaign_name(preset: str, practice: bool, created_ms: int) -> str:
    """A new name for a campaign's folder, such as `digits-20260102T030405Z-1a2b3c`."""
    created = datetime.fromtimestamp(created_ms / 1000, timezone.utc)
    kind = "practice-" if practice else ""
    return f"{kind}{preset}-{created:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def _plan(prepared: Prepared, request: Request, data: Data, system: Mapping[str, Any]) -> Plan:
    benchmark, configuration = prepared.benchmark, prepared.configuration
    if not request.practice:
        require_dataset(data, benchmark)
    now = time.time_ns() // 1_000_000
    submitter, system_name = names(request, configuration.nodes, system)
    unseen: list[str] = []
    results = prepared.wanted.results
    earlier = earlier_campaigns(results, benchmark.name, submitter, unseen.append)
    if forgetful := against_memory():
        unseen.append(": ".join(filter(None, (forgetful.what, forgetful.why))))
    counted, practice = (
        [EarlierCampaign(one.campaign, one.head) for one in earlier if one.practice is kind]
        for kind in (False, True)
    )
    chip, chips = chips_of(configuration.to_json(), system["hardware"])
    return Plan(
        ruleset=CURRENT,
        benchmark=benchmark.name,
        division=configuration.division,
        practice=request.practice,
        preset=configuration.preset,
        settings=request.settings,
        runs=prepared.runs,
        submitter=submitter,
        system=system_name,
        name=campaign_name(configuration.preset, request.practice, now),
        nonce=secrets.token_hex(16),
        chip=chip,
        chips=chips or 1,
        system_digest=system_digest(system),
        package_digest=package_digest(),
        package_commit=package_commit(),
        dataset=data.manifest.facts(),
        configuration=configuration.to_json(),
        configuration_digest=configuration.digest(),
        earlier_campaigns=counted,
        practice_campaigns=practice,
        earlier_unseen=[*dict.fromkeys(map(redact, unseen))],
        created_ms=now,
        practice_seed=request.seed,
        ranked_batch=request.ranked_batch,
    )
