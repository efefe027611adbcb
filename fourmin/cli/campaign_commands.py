"""`fourmin register`, `abandon` and `submit`: the life of a campaign beside its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fourmin.base.errors import FourminError
from fourmin.base.text import command
from fourmin.cli import options
from fourmin.cli.config_file import field_options, user_options

SUBMISSIONS = Path("submissions")
Into = Annotated[Path, typer.Option(help="The folder of submissions in the shared repository.")]


def register(
    ctx: typer.Context,
    preset: options.Preset,
    submitter: options.Submitter = None,
    system: options.System = None,
    nodes: options.Nodes = None,
    procs_per_node: options.ProcsPerNode = None,
    settings: options.Settings = None,
    data_dir: options.DataDir = None,
    ranked_batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BATCH",
            help="The global batch whose result is ranked, where this system has several; the "
            "first plan that is merged decides, and without a name the slowest is.",
        ),
    ] = None,
    into: Into = SUBMISSIONS,
    signing_key: options.SigningKey = None,
) -> None:
    """Write a campaign's plan for a shared repository to merge, before anything runs.

    When it is merged and the repository's next beacon is there, `fourmin run --campaign PATH`
    assigns the seeds from that and runs it.
    """
    from fourmin.campaign.registration import register as register_plan
    from fourmin.campaign.request import Placement, Request
    from fourmin.cli.output import stdout
    from fourmin.ledger.campaign import Campaign

    own = user_options()
    submitter, system = submitter or own.get("submitter"), system or own.get("system")
    if submitter is None:
        raise FourminError(
            "a registered campaign needs a submitter",
            next_step='--submitter NAME, or submitter = "NAME" in ~/.config/fourmin/config.toml',
        )
    request = Request(
        preset=preset,
        options=field_options(ctx),
        settings=tuple(settings or ()),
        submitter=submitter,
        system_name=system,
        results_dir=into,
        ranked_batch=ranked_batch,
    )
    folder = register_plan(request, Placement(data_dir=data_dir), signing_key)
    console = stdout()
    console.print(f"registered {folder}")
    for note in Campaign(folder).plan.unseen_notes():
        console.print(note)
    console.print(
        "next: commit and merge it; after the next beacon (a commit to rules/beacon on the base "
        f"branch): {command('run', '--campaign', folder)}"
    )


def abandon(
    campaign: options.Campaign,
    reason: Annotated[str, typer.Option(help="Why; it is published.")] = "no reason given",
    signing_key: options.SigningKey = None,
) -> None:
    """Give a campaign up, visibly: its ledger says so, and it counts as failed."""
    from fourmin.campaign import registration
    from fourmin.cli.output import stdout

    registration.abandon(campaign, reason, signing_key)
    stdout().print(f"abandoned {campaign}; it stays visible and counts as failed")


def submit(
    campaign: Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="A closed campaign.")],
    into: Into = SUBMISSIONS,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Publish what names a host or a user.")
    ] = False,
    signing_key: options.SigningKey = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be published, and write nothing.")
    ] = False,
) -> None:
    """Pack a closed campaign, with its system's description, for a repository of submissions.

    Everything that will be published is listed. A campaign that does not validate is refused.
    """
    from fourmin.base.errors import list_names
    from fourmin.base.text import printable
    from fourmin.campaign.publish import prepare_publication, publish
    from fourmin.cli.output import stdout
    from fourmin.results.places import SYSTEM_FILE

    publication = prepare_publication(campaign, into, signing_key)
    console = stdout()
    console.print(f"to be published below {into}:")
    for name, data in sorted(publication.files.items()):
        console.print(f"  {printable(name)}  {len(data):,} bytes")
    if publication.signatures:
        console.print(f"signed with {signing_key}: {list_names(publication.signatures)}")
    if not allow_private:
        publication.require_impersonal()
    if dry_run:
        console.print("nothing was written (--dry-run)")
        return
    publish(publication, into)
    description = into / publication.place.parent / SYSTEM_FILE
    if publication.untold:
        console.print(f"written; tell {list_names(publication.untold)} in {description},")
        console.print(f"then `{command('validate', into)}`, and commit")
    else:
        console.print(f"written; see whether {description} is right, then commit")
