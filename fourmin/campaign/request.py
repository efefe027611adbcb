"""What a user asks of `fourmin run`: a new campaign, or one that is there already; and where."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from fourmin.base.errors import FourminError
from fourmin.launch import Surroundings, network
from fourmin.launch.site import Site
from fourmin.launch.timeouts import Timeouts
from fourmin.ledger.campaign import CAMPAIGN_FILE, Campaign, require_campaign
from fourmin.recipe.fields import AUTO
from fourmin.recipe.settings import requested_changes
from fourmin.recipe.tuning import load_tuning


@dataclass(frozen=True)
class Request:
    """What is to be run. None, and nothing, is what was not given."""

    preset: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Configuration fields that have an option of their own."""
    settings: Sequence[str] = ()
    """`--set` options, as written."""
    practice: bool = False
    runs: int | None = None
    seed: int | None = None
    results_dir: Path | None = None
    submitter: str | None = None
    system_name: str | None = None
    ranked_batch: int | None = None
    """Of a plan that is merged before it runs: see `Plan`."""
    tuning: Path | None = None
    """A file of `fourmin bench allreduce`."""


@dataclass(frozen=True)
class Placement:
    """The options of `fourmin run` that may differ each time it goes on with a campaign."""

    data_dir: Path | None = None
    stage: Path | None = None
    """A folder of each node to which every run copies the dataset first."""
    launcher: str = "auto"
    site: Site = field(default_factory=Site)
    site_file: Path | None = None
    job_options: Mapping[str, Any] = field(default_factory=dict)
    """What goes over the launcher's section of the site; None where it was not given."""
    address: str = ""
    runs_per_job: int | None = None
    max_restarts: int = 3
    """How often a command starts the workers of a run again when some of them fail."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    trial: bool = False
    """Whether each node of several is tried alone first."""
    exclude_slow: bool = False
    keep_states: Path | None = None
    """A folder in which the state after each epoch is kept, for an audit."""
    profile: int | None = None
    """Of how many steps each run leaves a trace (practice only)."""

    def surroundings(self, site: Site, say: Callable[[str], None]) -> Surroundings:
        """What a launcher may use. Raises FourminError for an address that is none."""
        return Surroundings(site, say, *network.parse_address(self.address), self.timeouts)


@dataclass(frozen=True)
class New:
    """A campaign that is to be registered."""

    request: Request

    @property
    def results(self) -> Path:
        return self.request.results_dir or Path("results")


@dataclass(frozen=True)
class Existing:
    """A registered campaign. `base`: the branch its plan was merged into, where it has no seeds."""

    folder: Path
    base: str | None = None

    @cached_property
    def campaign(self) -> Campaign:
        """Its plan and its ledger, as they are read for the first time."""
        return Campaign(self.folder)

    @property
    def results(self) -> Path:
        return self.folder.absolute().parent


Wanted: TypeAlias = New | Existing


def choose_campaign(
    request: Request,
    *,
    resume: Path | None = None,
    registered: Path | None = None,
    base: str | None = None,
    campaign_file: Path | None = None,
) -> Wanted:
    """The campaign that the options of `fourmin run` mean.

    Raises FourminError where they name two campaigns, none that is there, or one that `request`
    contradicts.
    """
    named = {
        option: folder
        for option, folder in (
            ("--resume", resume),
            ("--campaign", registered),
            ("--campaign-file", _named_in(campaign_file)),
        )
        if folder is not None
    }
    if len({folder.resolve() for folder in named.values()}) > 1:
        raise FourminError(
            "two campaigns are named: which one?",
            "; ".join(f"{option} {folder}" for option, folder in named.items()),
        )
    if not named:
        if base is not None:
            raise FourminError(
                "--base needs --campaign", "only a merged plan gets its seeds from a branch"
            )
        return New(request)
    folder = next(iter(named.values()))
    require_campaign(folder)
    existing = Existing(folder, base)
    _refuse_contradictions(request, existing.campaign)
    return existing


def _named_in(campaign_file: Path | None) -> Path | None:
    """The campaign that a job before this one registered."""
    if campaign_file is None or not campaign_file.is_file():
        return None
    named = os.fsdecode(campaign_file.read_bytes().strip())
    if not os.path.isfile(os.path.join(named, CAMPAIGN_FILE)):
        raise FourminError(
            f"the file {campaign_file} names no campaign",
            f"no campaign in {named[:200]}" if named else "it is empty",
            "remove it, and the next campaign is registered and named in it",
        )
    return Path(named)


def _refuse_contradictions(request: Request, campaign: Campaign) -> None:
    wrong = [
        (option, f"{option} {given}: it has {registered}")
        for option, given, registered in _compared(request, campaign)
        if given not in (None, AUTO, registered)
    ]
    if wrong:
        *first, last = dict(wrong)
        names = f"{', '.join(first)} and {last}" if first else last
        raise FourminError(
            f"the campaign {campaign.folder} is registered otherwise than {names}",
            "\n".join(why for _, why in wrong),
            "leave out what is registered, or start another campaign without --resume",
        )


def _compared(request: Request, campaign: Campaign) -> Iterator[tuple[str, Any, Any]]:
    """Each option, what was given by it, and what is registered."""
    plan = campaign.plan
    fields = campaign.configuration.to_json()
    yield "--preset", request.preset, plan.preset
    changes = requested_changes(request.options, request.settings)
    for name, value in changes.items():
        own = request.options.get(name) is not None
        option = f"--{name.replace('_', '-')}" if own else f"--set {name}"
        yield option, list(value) if isinstance(value, tuple) else value, fields[name]
    if request.tuning is not None:
        follows = load_tuning(request.tuning).changes(changes)
        same = all(getattr(campaign.configuration, k) == v for k, v in follows.items())
        yield "--tuning", None if same else request.tuning, "another table"
    yield "--runs", request.runs, plan.runs
    yield "--seed", request.seed, plan.practice_seed
    yield "--practice", request.practice or None, plan.practice
    yield "--submitter", request.submitter, plan.submitter
    yield "--system", request.system_name, plan.system
    results = request.results_dir
    yield "--results-dir", results and results.resolve(), campaign.folder.resolve().parent
