"""`fourmin audit` and `fourmin prove`: a run trained again from its seed, or from its states."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourmin.base.errors import FourminError
from fourmin.base.text import printable
from fourmin.cli import options
from fourmin.log.keys import LOGGED_STEPS

if TYPE_CHECKING:
    from fourmin.campaign.audit import Audit
    from fourmin.campaign.replay import ProofAudit

AUDITS = Path("audits")
States = Annotated[
    Path, typer.Option(metavar="DIR", help="Where --keep-states kept the states of the runs.")
]


def audit(
    campaign: options.Campaign,
    run: Annotated[int, typer.Option(help="Which run, where only its start is.", min=1)] = 1,
    steps: Annotated[
        int | None,
        typer.Option(
            help=f"Steps to replay. [default: {LOGGED_STEPS}, or 4 where the CPU stands in for "
            "GPUs]",
            min=1,
            max=LOGGED_STEPS,
            show_default=False,
        ),
    ] = None,
    challenge: Annotated[
        bool, typer.Option("--challenge", help="Draw which epochs are to be proved, and sign it.")
    ] = False,
    proof: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Train the epochs of the challenge again, from these."),
    ] = None,
    auditor: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who audits: whose challenge it is.")
    ] = None,
    audits: Annotated[
        Path, typer.Option(help="The folder beside `submissions` for challenges and statements.")
    ] = AUDITS,
    beacon: Annotated[
        bool, typer.Option("--beacon", help="Draw by the first beacon after the ledger landed.")
    ] = False,
    signing_key: options.SigningKey = None,
    data_dir: options.DataDir = None,
    as_json: options.Json = False,
) -> None:
    """Train the start of a run again from its seed; or, challenged, its epochs from its states.

    The first compares initial weights, data order and first losses of any run. With --challenge
    an auditor says which epochs of a closed campaign with deterministic=true are to be proved;
    its submitter packs their states with `fourmin prove`; and with --proof they are trained again
    and compared. With --signing-key that leaves a statement.

    Exit code 0: nothing differs; 1: something does; 2: it could not be done here.
    """
    if not (challenge or proof):
        _replay_start(campaign, run, steps, data_dir, as_json)
        return
    from fourmin.campaign.challenge import challenge as draw
    from fourmin.campaign.challenge import load_closed
    from fourmin.cli.output import stdout

    if auditor is None:
        raise FourminError("no auditor", "a challenge is somebody's", "--auditor NAME")
    view = load_closed(campaign)
    if proof is not None:
        _replay_proof(view, proof, auditor, audits, signing_key, data_dir, steps, as_json)
        return
    if signing_key is None:
        raise FourminError("a challenge is signed", "and no key was given", "--signing-key FILE")
    path = draw(view, auditor, audits, signing_key, beacon=beacon)
    stdout().print(
        f"written {path}; next: commit and merge it, then its submitter: fourmin prove "
        f"{campaign} --challenge {path} --states DIR"
    )


def prove(
    campaign: options.Campaign,
    challenge: Annotated[Path, typer.Option(metavar="FILE", help="The auditor's challenge.")],
    states: States,
    output: Annotated[Path, options.output(metavar="FILE", help="The proof.")] = Path("proof.tar"),
) -> None:
    """Pack the states that a challenge asks for, for its auditor.

    How large the proof becomes is said before it is packed.
    """
    from fourmin.campaign.challenge import load_closed, read_challenge
    from fourmin.campaign.proof import prepare_proof
    from fourmin.cli.output import stderr, stdout, working

    options.require_output_file(output)
    view = load_closed(campaign)
    packed = prepare_proof(read_challenge(challenge, view), view, states)
    stderr().print(f"packing {len(packed.wanted)} states, {packed.size / 1e6:,.1f} MB")
    with working("packing"):
        packed.pack(output)
    stdout().print(f"written {output}; its auditor: fourmin audit {campaign} --proof {output}")


def _replay_start(
    campaign: Path, run: int, steps: int | None, data_dir: Path | None, as_json: bool
) -> None:
    from fourmin.campaign.audit import prepare_audit
    from fourmin.cli.output import stderr, working

    prepared = prepare_audit(campaign, run, data_dir, steps)
    replay = prepared.configuration
    stderr().print(
        f"replaying {replay.max_steps} steps of {replay.global_batch_size} images of "
        f"{replay.image_size} x {replay.image_size} ({replay.model}, {replay.workers} worker(s), "
        f"{replay.device}, {replay.precision})"
    )
    with working("replaying"):
        outcome = prepared.replay()
    machine = "the same kind of machine" if outcome.same_machine else "another kind of machine"
    headline = f"run {run} of {printable(campaign)}, replayed on {machine}"
    _print("audit", outcome, headline, as_json)
    if not outcome.ok:
        raise typer.Exit(1)


def _replay_proof(
    view: Any,
    proof: Path,
    auditor: str,
    audits: Path,
    key: Path | None,
    data_dir: Path | None,
    steps: int | None,
    as_json: bool,
) -> None:
    from fourmin.campaign.challenge import read_challenge, state_outcome
    from fourmin.campaign.replay import prepare_proof_audit
    from fourmin.cli.output import stderr, working
    from fourmin.ledger.challenge import DIFFERS, audit_name

    path = audits / audit_name(auditor, view.digest, statement=False)
    asked = read_challenge(path, view)
    prepared = prepare_proof_audit(view, asked, data_dir, steps)
    few = f", {prepared.steps} steps of each: other devices or versions"
    how = "" if prepared.steps is None else few
    count = sum(map(len, asked["segments"].values()))
    stderr().print(f"replaying {count} epochs of {len(asked['segments'])} runs{how}")
    with working("replaying"):
        outcome = prepared.replay(proof, lambda line: stderr().print(line))
    times = "" if outcome.outcome == DIFFERS else " (training replayed; times as claimed)"
    _print("proof", outcome, f"{outcome.outcome}{times}: {printable(view.path)}", as_json)
    if key is not None:
        version = next(iter(prepared.runs.values()))[0].facts.system["software"]["fourmin"]
        written = state_outcome(audits, asked, outcome.outcome, version, key)
        stderr().print(f"written {written}")
    if outcome.outcome == DIFFERS:
        raise typer.Exit(1)


def _print(kind: str, found: Audit | ProofAudit, headline: str, as_json: bool) -> None:
    from fourmin.cli.output import print_json, stdout

    if as_json:
        print_json(kind, found.to_json(), indent=None)
        return
    stdout().print(headline)
    for one in found.comparisons:
        stdout().print(f"  {one.name}: {one.verdict}")
        stdout().print(f"    claimed  {printable(one.claimed)}")
        stdout().print(f"    replayed {printable(one.replayed)}")
