"""Trains the segments of a challenge again from a proof's states, and compares with the log."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.processes import Scratch
from fourmin.base.values import mapping
from fourmin.campaign.audit import (
    CLOSE,
    DIFFERENT,
    GROWTH,
    SAME,
    Recomputed,
    compare_losses,
    initial_weights,
    replayable_here,
    tolerances,
    train,
)
from fourmin.campaign.proof import unpack
from fourmin.campaign.requirements import Data, get_registered_data
from fourmin.launch.local import LocalLauncher
from fourmin.ledger import challenge
from fourmin.ledger.challenge import runs_to_replay, states_of
from fourmin.ledger.view import CampaignView, RunView
from fourmin.log import keys
from fourmin.log.timeline import Timeline
from fourmin.recipe.configuration import Configuration
from fourmin.results.run_result import RunFacts
from fourmin.system.capture import capture_system
from fourmin.system.software import package_digest

UNDECIDED = "undecided"
COUNT_TOLERANCE = 0.002
"""Of all images: how many answers may differ on another kind of device."""


@dataclass(frozen=True)
class ProofAudit:
    """What the replay of a proof gave."""

    same_kind: bool
    comparisons: tuple[Recomputed, ...]

    @property
    def outcome(self) -> str:
        """The word for the statement."""
        verdicts = {one.verdict for one in self.comparisons}
        if DIFFERENT in verdicts:
            return challenge.DIFFERS
        if self.same_kind and verdicts == {SAME}:
            return challenge.AUDITED
        return challenge.UNDECIDED if UNDECIDED in verdicts else challenge.CLOSE

    def to_json(self) -> dict[str, Any]:
        told = [dataclasses.asdict(one) for one in self.comparisons]
        return {"outcome": self.outcome, "same_kind": self.same_kind, "comparisons": told}


@dataclass(frozen=True)
class ProofReplay:
    """The runs of a challenge that can be replayed here, each with how it is trained here."""

    view: CampaignView
    asked: Mapping[str, Any]
    runs: Mapping[int, tuple[RunView, Configuration]]
    data: Data
    steps: int | None
    """Of each segment, where the devices are of another kind; None: all, and the bits must be the
    same."""
    system: Mapping[str, Any]

    def replay(self, proof: Path, say: Callable[[str], None]) -> ProofAudit:
        """Train them. Raises FourminError for a wrong proof, and where the replay itself fails."""
        launcher = LocalLauncher()
        found: list[Recomputed] = []
        with Scratch() as folder:
            try:
                unpack(proof, self.asked, self.view, folder)
                for number, (run, here) in self.runs.items():
                    say(f"replaying run {number} of {len(self.runs)}")
                    epochs = tuple(self.asked["segments"][str(number)])
                    ours = train(
                        run.facts, here, self.data, self.system, launcher,
                        segments=epochs, segment_steps=self.steps, starts=folder,
                    )  # fmt: skip
                    found += _compare(number, run, ours, epochs, here, self.steps is None)
            finally:
                launcher.close()
        return ProofAudit(self.steps is None, tuple(found))


def prepare_proof_audit(
    view: CampaignView, asked: Mapping[str, Any], data_dir: Path | None, steps: int | None
) -> ProofReplay:
    """What this machine replays of a challenge.

    Raises FourminError where it lacks something, or the images are not here.
    """
    assert view.plan is not None
    data = get_registered_data(view.plan, data_dir)
    system, runs, same, most = capture_system(), {}, True, 0
    for number, run in runs_to_replay(view).items():
        assert run.configuration is not None
        here = replayable_here(run.configuration, steps)
        most = here.max_steps or 0
        here = dataclasses.replace(here, max_steps=run.configuration.max_steps)
        same = same and _same_kind(run.facts, run.configuration, here, system)
        runs[number] = run, here
    return ProofReplay(view, asked, runs, data, None if same else most, system)


def _same_kind(
    facts: RunFacts, claimed: Configuration, here: Configuration, system: Mapping[str, Any]
) -> bool:
    """Whether the bits must be the same: devices, their number, versions and settings are."""

    def decisive(of: Mapping[str, Any]) -> tuple[Any, ...]:
        hardware, software = mapping(of.get("hardware")), mapping(of.get("software"))
        names = ("torch", "torchvision", "dali", "numpy", "pillow", "cuda", "cudnn", "nccl")
        gpus = {str(mapping(one).get("model")) for one in hardware.get("accelerators") or ()}
        processor = mapping(hardware.get("processor")).get("model")
        device = sorted(gpus) if here.device == "cuda" else processor
        return (device, *(software.get(name) for name in names))

    alike = dataclasses.replace(claimed, checkpoints=here.checkpoints) == here
    return (
        alike
        and decisive(facts.system) == decisive(system)
        and facts.package_digest == package_digest()
    )


def _compare(
    number: int,
    run: RunView,
    ours: Timeline,
    epochs: tuple[int, ...],
    here: Configuration,
    same_kind: bool,
) -> Iterator[Recomputed]:
    """One run's log against that of its replay."""
    assert run.timeline is not None
    assert run.configuration is not None
    theirs, replayed = states_of(run.timeline), states_of(ours)
    # An environment can choose other instructions on the same processor.
    exact = same_kind and run.timeline.value(keys.NUMERICS) == ours.value(keys.NUMERICS)
    if exact:
        yield _hashes(f"run {number}, state 0", (0,), theirs, replayed)
        yield _hashes(f"run {number}, {len(epochs)} segments", epochs, theirs, replayed)
    else:
        first = initial_weights(run.facts, RunFacts.of(ours))
        yield dataclasses.replace(first, name=f"run {number}, {first.name}")
        within = tolerances(run.configuration, here)
        for epoch in epochs:
            claimed, here_too = (of[epoch].get("step_loss") for of in (theirs, replayed))
            one = compare_losses(claimed, here_too or [], within, GROWTH)
            name = f"run {number}, first losses of epoch {epoch}"
            yield dataclasses.replace(one, name=name)
    yield _answers(number, run, ours, exact)


def _hashes(
    name: str,
    epochs: tuple[int, ...],
    theirs: Mapping[int, Mapping[str, Any]],
    ours: Mapping[int, Mapping[str, Any]],
) -> Recomputed:
    """The first state that is another one, or the last one."""
    pairs = [(one, theirs[one].get("sha256"), ours[one].get("sha256")) for one in epochs]
    epoch, claimed, replayed = next((one for one in pairs if one[1] != one[2]), pairs[-1])
    verdict = SAME if claimed == replayed else DIFFERENT
    return Recomputed(name, verdict, f"{claimed} after epoch {epoch}", str(replayed))


def _answers(number: int, run: RunView, ours: Timeline, exact: bool) -> Recomputed:
    """The correct answers of the last state, on the whole validation set."""

    def counted(timeline: Timeline | None) -> tuple[int, int]:
        record = timeline.all(keys.EVAL_ACCURACY)[-1] if timeline else None
        told: Mapping[str, Any] = record.metadata if record else {}
        return int(told["correct_count"]), int(told["samples_count"])

    (claimed, images), (replayed, _) = counted(run.timeline), counted(ours)
    room = 0 if exact else max(1, round(COUNT_TOLERANCE * images))
    verdict = SAME if exact else CLOSE
    if abs(claimed - replayed) > room:
        verdict = DIFFERENT
    elif not exact and run.benchmark is not None:
        least = run.benchmark.quality_target * images
        spans = replayed - room < least <= replayed + room
        verdict = UNDECIDED if spans else CLOSE
    told = f"{replayed} of {images}"
    return Recomputed(f"run {number}, correct answers", verdict, f"{claimed} of {images}", told)
