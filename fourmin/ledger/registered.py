"""How campaigns were registered: the one place that puts their ledgers beside git's history.

A ledger says that its seeds come from the beacon after its plan was merged. The base branch
proves that, or contradicts it, where all of its history is at hand; elsewhere it stays a claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.ledger.audits import (
    AUDITORS_FILE,
    AuditFile,
    audits_of,
    folder_of_audits,
    load_auditors,
)
from fourmin.ledger.campaign import CAMPAIGN_FILE, LEDGER_FILE
from fourmin.ledger.git import Repository, repository_around
from fourmin.ledger.landings import CLAIMED, REGISTERED, SELF, Landing, Landings, Registration
from fourmin.ledger.signatures import NOT_SIGNED, SIGNED, Signing, require_ssh_keygen
from fourmin.ledger.signed import signing_of
from fourmin.ledger.view import CampaignView
from fourmin.results.folder import MAX_JSON_BYTES
from fourmin.results.places import SUBMISSIONS

GONE = "no longer in the tree"
_DEEPEN = "git fetch --unshallow, or in a workflow: fetch-depth: 0"


class Registrations:
    """Looks each repository's history up once, and only where a campaign lies among submissions or
    does not register itself.

    With `base` that repository's branch decides, and FourminError is raised where git fails;
    otherwise, of the repository around each campaign, the branch that others merge into
    (`default_base`), and where git fails a claim stays one.
    """

    def __init__(self, base: Repository | None = None) -> None:
        self._base = base
        self._known: dict[Path | None, Landings | Registration] = {}
        self._others: dict[str, Landings] = {}

    def attach(self, campaigns: Iterable[CampaignView]) -> None:
        """Give each campaign its `registration`, `signing` and `audits`, and with a base its
        `landed`."""
        for campaign in campaigns:
            campaign.registration = self.of(campaign)
            campaign.signing = self._signing(campaign)
            campaign.audits = self._audits(campaign)
            if self._base is not None and isinstance(known := self._landings(None), Landings):
                campaign.landed = _landing(known, campaign)

    def of(self, campaign: CampaignView) -> Registration:
        """How one campaign was registered. A plan without seeds waits, and claims."""
        if campaign.history.self_registered:
            return Registration(SELF)
        known = self._landings(_top(campaign))
        if isinstance(known, Registration):
            return known
        try:
            return self._proved(campaign, known)
        except FourminError as error:
            return self._unreadable(error)

    def _proved(self, campaign: CampaignView, known: Landings) -> Registration:
        """What a history says of a campaign that does not register itself."""
        landing = _landing(known, campaign)
        seeds = campaign.history.seeds
        if seeds is None:
            return Registration(CLAIMED, landing)
        beacon = str(seeds.data.get("beacon"))
        against = _against(landing, beacon)
        if not against:
            merged = landing is not None and known.self_merged(landing)
            return Registration(REGISTERED, landing, merged)
        if known.repository.relative(str(campaign.folder)) is None:
            return Registration(CLAIMED, unproved="outside of the repository")
        if self._base is None:
            held = landing is not None and landing.path.startswith(f"{SUBMISSIONS}/")
            if not known.beacons or not (held or campaign.place):
                return Registration(CLAIMED, unproved="not a submission of this repository")
            unsaid = landing is None or (landing.stands and landing.beacon is None)
            if unsaid and self._elsewhere(known.repository, campaign, beacon):
                return Registration(CLAIMED, landing, unproved="not on the base branch here")
        return Registration(CLAIMED, landing, contradiction=against)

    def _signing(self, campaign: CampaignView) -> Signing:
        """What a campaign's signatures are worth; outside of submissions none is required."""
        if not campaign.place:
            return NOT_SIGNED
        known = self._landings(_top(campaign))
        if isinstance(known, Landings):
            return signing_of(campaign, known, strict=self._base is not None)
        return Signing(unproved=known.unproved if SIGNED.keys() & campaign.files.keys() else "")

    def _audits(self, campaign: CampaignView) -> tuple[AuditFile, ...]:
        """What auditors say of a campaign among submissions."""
        if folder_of_audits(campaign) is None:
            return ()
        known, base = self._landings(_top(campaign)), self._base
        landings = known if isinstance(known, Landings) else None
        keys = base.read(f"rules/{AUDITORS_FILE}") or b"" if base else load_auditors()
        return tuple(audits_of(campaign, keys, landings, strict=base is not None))

    def gone(
        self, paths: Sequence[Path], present: Collection[CampaignView]
    ) -> Iterator[CampaignView]:
        """The campaigns whose plans landed among submissions at or below `paths` and left the tree,
        which has those of `present`; what is left of them is their plan.
        """
        seen: set[str] = set()
        for path in paths:
            known = self._landings(repository_around(path))
            if isinstance(known, Registration):
                continue
            below = f"{known.repository.relative(str(path))}/"
            prefix = "" if below == "./" else below
            here = {known.blob(campaign.files.get(CAMPAIGN_FILE) or b"") for campaign in present}
            try:
                landed = [one for one in known.submitted() if one[0].path.startswith(prefix)]
                found = [one for one in landed if one[0].blob not in here]
                names = [name for one, ledger in found for name in (one.blob, ledger) if name]
                contents = known.repository.blobs(names, MAX_JSON_BYTES)
            except FourminError:
                continue
            for landing, ledger in found:
                place = landing.path.removesuffix(f"/{CAMPAIGN_FILE}")
                plan, lines = contents.get(landing.blob), contents.get(ledger)
                campaign = CampaignView(
                    str(path / place.removeprefix(prefix)),
                    {CAMPAIGN_FILE: plan, LEDGER_FILE: lines},
                    place=tuple(place.split("/")[1:]),
                )
                if campaign.plan and campaign.at_home and campaign.digest not in seen:
                    seen.add(campaign.digest)
                    word = SELF if campaign.history.self_registered else CLAIMED
                    campaign.registration = Registration(word, landing, unproved=GONE)
                    yield campaign

    def _landings(self, top: Path | None) -> Landings | Registration:
        """The history that is known at `top`, or why there is none to look at."""
        if self._base is not None:
            top = self._base.root
        if top not in self._known:
            self._known[top] = self._look(top)
        return self._known[top]

    def _look(self, top: Path | None) -> Landings | Registration:
        try:
            repository = self._base or (None if top is None else Repository.around(top))
            if repository is None:
                return Registration(CLAIMED, unproved="no git history")
            if repository.shallow:
                return Registration(CLAIMED, unproved="a shallow clone", advice=_DEEPEN)
            landings = Landings(repository)
            if self._base is not None and landings.any_signers:
                require_ssh_keygen()
            return landings
        except FourminError as error:
            return self._unreadable(error)

    def _unreadable(self, error: FourminError) -> Registration:
        if self._base is not None:
            raise error
        advice = "; ".join(str(error).split("\n"))
        return Registration(CLAIMED, unproved="git history not readable", advice=advice)

    def _elsewhere(self, repository: Repository, campaign: CampaignView, beacon: str) -> bool:
        """Whether HEAD or another branch bears a claim out: this one may be a fork's, or not up to
        date.
        """
        for other in repository.others_with(beacon):
            if other.branch not in self._others:
                self._others[other.branch] = Landings(other)
            if not _against(_landing(self._others[other.branch], campaign), beacon):
                return True
        return False


def _top(campaign: CampaignView) -> Path | None:
    """The checkout around a campaign; a repository below its root of submissions is none."""
    if campaign.folder is None:
        return None
    folder = campaign.folder.absolute()
    above = len(campaign.place or ())
    return repository_around(folder.parents[above - 1] if above else folder)


def _landing(landings: Landings, campaign: CampaignView) -> Landing | None:
    plan = campaign.files.get(CAMPAIGN_FILE)
    if plan is None or campaign.folder is None:
        return None
    return landings.find(campaign.folder, plan, campaign.planned_place)


def _against(landing: Landing | None, beacon: str) -> str:
    """What the base branch says against a claim; empty where it proves it."""
    if landing is None:
        return "the base branch never held this plan: it was not registered"
    if not landing.stands:
        return "the base branch took the plan back, which abandons the campaign"
    if landing.beacon == beacon:
        return ""
    expected = f"that is {landing.beacon}" if landing.beacon else "there is none yet"
    return f"not the first beacon after the plan landed in {landing.commit[:12]}; {expected}"
