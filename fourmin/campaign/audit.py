"""Replays the start of a run from its seed, without the submitter's machine.

What a seed decides can be computed again anywhere: the initial weights and the order of the data.
The first steps are trained again: on the same kind of machine their losses are the same to the
last bit, elsewhere close.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import NOT_CONVERGED, FourminError
from fourmin.base.processes import Scratch
from fourmin.base.text import command
from fourmin.campaign.requirements import (
    Data,
    Place,
    get_registered_data,
    missing,
    require,
)
from fourmin.campaign.watch import Watch
from fourmin.launch import Launcher
from fourmin.launch.job import Job
from fourmin.launch.local import LocalLauncher
from fourmin.log import keys
from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline
from fourmin.recipe.algorithms import NEVER_REPLAYED, as_synchronous, is_asynchronous, repeats_order
from fourmin.recipe.configuration import Configuration
from fourmin.results.run_result import RunFacts
from fourmin.rules.engine import load_campaign
from fourmin.system.capture import capture_system, system_digest
from fourmin.system.hardware import usable_gpus
from fourmin.system.software import package_digest

TOLERANCE = 1e-3
"""Largest relative difference of a loss of the first steps between different machines.

Eight steps of FP16 on an H200 differed by 3e-6 from FP32 on a CPU (resnet50-tiny), BF16 by 8e-5
from FP32 (resnet8); those of another seed differ by 3e-3 to 1e-2."""

GROWTH = 3.0
"""How much further each step from a kept state may lie than the one before.

In the middle of a training at a high rate a difference grows from step to step: eight steps of
digits with AVX-512 against the same without it lay 5e-5 apart at the first and 3e-2 at the sixth.
What a state and its images decide alone, the first loss, is held closest."""

LOOSE_TOLERANCE = 0.02
"""The same where the replay cannot have the same pixels, dropout masks or skipped steps."""

DROPOUT_MODELS = ("alexnet",)
"""Models with dropout, whose masks each kind of device draws in its own way."""

STEPS_ON_A_CPU = 4
"""Steps that are replayed where a CPU stands in for GPUs: each may take a minute or more."""

SAME, CLOSE, DIFFERENT, NOT_COMPARED = "same", "close", "different", "not compared"


@dataclass(frozen=True)
class Recomputed:
    """One thing that was recomputed: its name, the verdict, and both values in short."""

    name: str
    verdict: str
    claimed: str
    replayed: str


@dataclass(frozen=True)
class Audit:
    """What a replay of a run's start gave."""

    run: int
    same_machine: bool
    comparisons: tuple[Recomputed, ...]

    @property
    def ok(self) -> bool:
        return all(comparison.verdict != DIFFERENT for comparison in self.comparisons)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "ok": self.ok,
            "same_machine": self.same_machine,
            "comparisons": [dataclasses.asdict(comparison) for comparison in self.comparisons],
        }


def replayable(claimed: Configuration, gpus: int, cores: int, steps: int | None) -> Configuration:
    """The first steps of the training that `claimed` configures, by workers of this machine.

    `gpus` and `cores` are what this machine has. Without enough GPUs the CPU stands in for them,
    in FP32 where the run used FP16, with all of its cores. Of an asynchronous algorithm weights
    and order can be compared, and one worker replays it. `steps` are the steps to replay; None:
    all whose losses a log holds, or `STEPS_ON_A_CPU` where the CPU stands in.
    """
    if is_asynchronous(claimed):
        claimed = as_synchronous(claimed)
    workers = claimed.workers
    here = claimed
    stands_in = claimed.device == "cuda" and gpus < workers
    if stands_in:
        fp16 = claimed.precision == "fp16"
        here = dataclasses.replace(
            claimed,
            device="cpu",
            precision="fp32" if fp16 else claimed.precision,
            gradient_dtype="fp32" if fp16 else claimed.gradient_dtype,
            step="eager",
            decoder="cpu",
            threads=max(1, cores // workers),
            # A step may take minutes here.
            collective_timeout_seconds=max(3600.0, claimed.collective_timeout_seconds),
        )
    return dataclasses.replace(
        here,
        nodes=1,
        procs_per_node=workers,
        # Groups of several nodes cannot be formed on one; the sum is the same.
        allreduce=claimed.allreduce if claimed.nodes == 1 else "native",
        group_size=claimed.group_size if claimed.nodes == 1 else 0,
        checkpoints=False,
        max_steps=steps or (STEPS_ON_A_CPU if stands_in else keys.LOGGED_STEPS),
    )


def replayable_here(claimed: Configuration, steps: int | None) -> Configuration:
    """As `replayable` by what this machine has. Raises FourminError where it lacks something."""
    here = replayable(claimed, usable_gpus(), len(os.sched_getaffinity(0)), steps)
    require(tuple(missing(here, Place.seen())), here.preset)
    return here


@dataclass(frozen=True)
class Replay:
    """A run's start that can be replayed here: what its log says, and how it is trained here."""

    facts: RunFacts
    configuration: Configuration
    data: Data

    def replay(self) -> Audit:
        """Train it, and compare. Raises FourminError when the replay itself fails."""
        facts = self.facts
        claimed = Configuration.from_json(facts.configuration)
        system = capture_system()
        ours = train(facts, self.configuration, self.data, system, LocalLauncher())
        replayed = RunFacts.of(ours)
        same_machine = _same_machine(facts, replayed)
        return Audit(
            run=int(facts.run),
            same_machine=same_machine,
            comparisons=(
                initial_weights(facts, replayed),
                _data_order(facts, claimed),
                Recomputed("first losses", NOT_COMPARED, claimed.algorithm, NEVER_REPLAYED)
                if is_asynchronous(claimed)
                else compare_losses(
                    facts.first_losses,
                    replayed.first_losses,
                    (0.0, 0.0) if same_machine else tolerances(claimed, self.configuration),
                ),
            ),
        )


def train(
    facts: RunFacts,
    configuration: Configuration,
    data: Data,
    system: Mapping[str, Any],
    launcher: Launcher,
    **what: Any,
) -> Timeline:
    """What the log of a replay says; `what` are further fields of its job.

    Raises FourminError where it fails.
    """
    with Scratch() as folder:
        job = Job(
            configuration=configuration,
            ruleset=facts.ruleset,
            run=facts.run,
            attempt=facts.attempt,
            seed=facts.seed,
            campaign=facts.campaign,
            practice=True,
            submitter="audit",
            system_name="audit",
            system=system,
            system_digest=system_digest(system),
            package_digest=package_digest(),
            dataset=facts.dataset,
            data_dir=data.folder.resolve(),
            manifest=data.path.resolve(),
            events_log=folder / "events.log",
            checkpoints=folder / "checkpoints",
            scratch=folder,
            replay=True,
            **what,
        )
        watch = Watch(job, lambda: None, lambda record: None)
        failure = watch.until_the_end(launcher)
        if failure is not None:
            raise FourminError(
                f"the replay failed: {failure.summary}",
                failure.details,
                exit_code=NOT_CONVERGED,
            )
        return Timeline(read_log(job.events_log))


def prepare_audit(campaign: Path, run: int, data_dir: Path | None, steps: int | None) -> Replay:
    """The start of a run of `campaign`, to be replayed by what this machine has.

    Raises FourminError where there is no such run, or its images are not here.
    """
    view = load_campaign(campaign)
    chosen = next((one for one in view.runs if one.number == run), None)
    if view.plan is None or chosen is None or chosen.configuration is None:
        raise FourminError(
            f"no run {run} in {campaign} that could be replayed",
            next_step=f"`{command('validate', campaign)}` says what is wrong",
        )
    data = get_registered_data(view.plan, data_dir)
    return Replay(chosen.facts, replayable_here(chosen.configuration, steps), data)


def _same_machine(claimed: RunFacts, replayed: RunFacts) -> bool:
    """Whether losses must agree to the bit: same processor, torch, threads and numbers."""

    def decisive(of: RunFacts) -> tuple[Any, ...]:
        names = ("device", "precision", "threads", "allreduce", "group_size", "fusion_threshold")
        return (
            of.hardware["processor"]["model"],
            of.hardware["accelerators"],
            of.system["software"]["torch"],
            *(of.configuration[name] for name in names),
        )

    # GPU kernels add up in an order that nothing fixes.
    return decisive(claimed) == decisive(replayed) and replayed.configuration["device"] == "cpu"


def initial_weights(claimed: RunFacts, replayed: RunFacts) -> Recomputed:
    theirs, ours = claimed.initial_weights_digest, replayed.initial_weights_digest
    verdict = SAME if theirs == ours else DIFFERENT
    return Recomputed("initial weights", verdict, str(theirs), str(ours))


def _data_order(facts: RunFacts, claimed: Configuration) -> Recomputed:
    """The order over the whole run, from the seed alone; a run that was aborted has none."""
    from fourmin.training.data.order import digest_of_order

    digest = facts.data_order_digest
    if digest is None or facts.epochs is None:
        return Recomputed("data order", NOT_COMPARED, "-", "the run was aborted")
    epochs = range(1, math.ceil(facts.epochs) + 1)
    expected = digest_of_order(
        facts.seed,
        [1 for _ in epochs] if repeats_order(claimed) else epochs,
        facts.dataset["train_samples"],
        lambda epoch: claimed.at(epoch).global_batch_size,
        claimed.max_steps,
    )
    return Recomputed("data order", SAME if digest == expected else DIFFERENT, digest, expected)


def tolerances(claimed: Configuration, here: Configuration) -> tuple[float, float]:
    """The largest relative difference of the first step's loss, and of those after it.

    The first depends on weights and images alone. Loss scaling may have skipped steps after it
    that a replay in FP32 performs.
    """
    other_masks = claimed.device != here.device and claimed.model in DROPOUT_MODELS
    if other_masks or claimed.decoder != here.decoder:
        return LOOSE_TOLERANCE, LOOSE_TOLERANCE
    may_skip = claimed.precision == "fp16" and here.precision != "fp16"
    return TOLERANCE, LOOSE_TOLERANCE if may_skip else TOLERANCE


def compare_losses(
    theirs: list[float | None] | None,
    ours: list[float | None],
    tolerances: tuple[float, float],
    growth: float = 1.0,
) -> Recomputed:
    """Claimed losses against replayed ones, as many as there are of both; None: not finite.

    Each step's tolerance is `growth` times that of the one before.
    """
    if not theirs:
        return Recomputed("first losses", NOT_COMPARED, "-", "the run ended before them")
    count = min(len(theirs), len(ours))
    off = [_off(a, b) for a, b in zip(theirs[:count], ours[:count], strict=True)]
    first, later = tolerances
    within = [first, *(later * growth**step for step in range(1, count))]
    if theirs[:count] == ours[:count]:
        verdict = SAME
    elif all(one <= most for one, most in zip(off, within, strict=True)):
        verdict = CLOSE
    else:
        verdict = DIFFERENT
    measured = f"{max(off):.1e} off in {count} of {len(theirs)}"
    return Recomputed("first losses", verdict, _short(theirs), f"{_short(ours)} ({measured})")


def _off(claimed: float | None, replayed: float | None) -> float:
    """Relative difference; infinite where only one of the two is finite."""
    if claimed is None or replayed is None:
        return 0.0 if claimed is replayed else math.inf
    return abs(claimed - replayed) / max(abs(replayed), 1e-12)


def _short(losses: list[float | None]) -> str:
    shown = ["-" if loss is None else f"{loss:.5f}" for loss in losses[:3]]
    return ", ".join([*shown, "…"] if len(losses) > 3 else shown)
