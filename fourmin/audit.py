"""Replays the start of a run from its seed, without the submitter's machine.

What a seed decides can be computed again anywhere: the initial weights and the order of the data.
The first steps are trained again: on the same kind of machine their losses are the same to the
last bit, elsewhere close.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.config import Configuration
from fourmin.errors import NOT_CONVERGED, FourminError
from fourmin.launch import Launcher
from fourmin.launch.job import Job
from fourmin.launch.watch import Watch
from fourmin.log import keys
from fourmin.log.reader import read_log
from fourmin.results.run_result import run_result
from fourmin.system.capture import capture_system, system_digest
from fourmin.system.software import package_digest

TOLERANCE = 0.02
"""Largest relative difference of a loss of the first steps between different machines.

BF16 and FP16 keep 8 and 11 significant bits, and other processors add up in another order."""

STEPS_ON_A_CPU = 4
"""Steps that are replayed where a CPU stands in for GPUs: each may take a minute or more."""

SAME, CLOSE, DIFFERENT, NOT_COMPARED = "same", "close", "different", "not compared"


@dataclass(frozen=True)
class Comparison:
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
    comparisons: tuple[Comparison, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return all(comparison.verdict != DIFFERENT for comparison in self.comparisons)

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "run": self.run,
            "ok": self.ok,
            "same_machine": self.same_machine,
            "comparisons": [dataclasses.asdict(comparison) for comparison in self.comparisons],
        }


def replayable(claimed: Configuration, gpus: int, cores: int, steps: int | None) -> Configuration:
    """The first steps of the training that `claimed` configures, by workers of this machine.

    `gpus` and `cores` are what this machine has. Without enough GPUs the CPU stands in for them,
    in FP32 where the run used FP16, with all of its cores. `steps` are the steps to replay; None:
    all whose losses a log holds, or `STEPS_ON_A_CPU` where the CPU stands in.
    """
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


def audit_run(
    result: Mapping[str, Any],
    configuration: Configuration,
    data_dir: Path,
    manifest: Path,
    launcher: Launcher,
) -> Audit:
    """Replay the start of the run that `result` (result.json) tells of.

    `configuration` is what `replayable` made of the run's. Raises FourminError when the replay
    itself fails.
    """
    claimed = Configuration.from_json(result["configuration"])
    system = capture_system()
    replayed = _replay(result, configuration, system, data_dir, manifest, launcher)
    same_machine = _same_machine(result, replayed)
    return Audit(
        run=int(result["run"]),
        same_machine=same_machine,
        comparisons=(
            _equal("initial weights", result, replayed, "initial_weights_digest"),
            _data_order(result, claimed),
            _losses(result, replayed, exact=same_machine),
        ),
    )


def _replay(
    result: Mapping[str, Any],
    configuration: Configuration,
    system: Mapping[str, Any],
    data_dir: Path,
    manifest: Path,
    launcher: Launcher,
) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory(prefix="fourmin-") as scratch:
        folder = Path(scratch)
        job = Job(
            configuration=configuration,
            ruleset=result["ruleset"],
            run=result["run"],
            attempt=1,
            seed=result["seed"],
            campaign=result["campaign"],
            practice=True,
            submitter="audit",
            system_name="audit",
            system=system,
            system_digest=system_digest(system),
            package_digest=package_digest(),
            dataset=result["dataset"],
            data_dir=data_dir.resolve(),
            manifest=manifest.resolve(),
            events_log=folder / "events.log",
            checkpoints=folder / "checkpoints",
            control_socket=folder / "control",
            scratch=folder,
            replay=True,
        )
        failure = Watch(job, lambda: None, lambda record: None).until_the_end(launcher)
        if failure is not None:
            raise FourminError(
                f"the replay failed: {failure.summary}", failure.details, exit_code=NOT_CONVERGED
            )
        return run_result(read_log(job.events_log))


def _same_machine(result: Mapping[str, Any], replayed: Mapping[str, Any]) -> bool:
    """Whether losses must agree to the bit: same processor, torch, threads and numbers."""

    def facts(of: Mapping[str, Any]) -> tuple[Any, ...]:
        system, configuration = of["system"], of["configuration"]
        names = ("device", "precision", "threads", "allreduce", "group_size", "fusion_threshold")
        return (
            system["hardware"]["processor"]["model"],
            system["hardware"]["accelerators"],
            system["software"]["torch"],
            *(configuration[name] for name in names),
        )

    # GPU kernels add up in an order that nothing fixes.
    return facts(result) == facts(replayed) and replayed["configuration"]["device"] == "cpu"


def _equal(
    name: str, result: Mapping[str, Any], replayed: Mapping[str, Any], key: str
) -> Comparison:
    verdict = SAME if result[key] == replayed[key] else DIFFERENT
    return Comparison(name, verdict, str(result[key]), str(replayed[key]))


def _data_order(result: Mapping[str, Any], claimed: Configuration) -> Comparison:
    """The order over the whole run, from the seed alone; a run that was aborted has none."""
    from fourmin.training.data.order import digest_of_order

    digest = result["data_order_digest"]
    if digest is None:
        return Comparison("data order", NOT_COMPARED, "-", "the run was aborted")
    expected = digest_of_order(
        result["seed"],
        range(1, math.ceil(result["epochs"]) + 1),
        result["dataset"]["train_samples"],
        claimed.global_batch_size,
        claimed.max_steps,
    )
    return Comparison("data order", SAME if digest == expected else DIFFERENT, digest, expected)


def _losses(result: Mapping[str, Any], replayed: Mapping[str, Any], *, exact: bool) -> Comparison:
    ours, theirs = replayed["first_losses"], result["first_losses"]
    if not theirs:
        return Comparison("first losses", NOT_COMPARED, "-", "the run ended before them")
    pairs = [(a, b) for a, b in zip(theirs, ours, strict=False) if a is not None and b is not None]
    worst = max((abs(a - b) / max(abs(b), 1e-12) for a, b in pairs), default=math.inf)
    if theirs[: len(ours)] == ours[: len(theirs)]:
        verdict = SAME
    elif not exact and worst <= TOLERANCE:
        verdict = CLOSE
    else:
        verdict = DIFFERENT
    return Comparison("first losses", verdict, _short(theirs), f"{_short(ours)} ({worst:.1e} off)")


def _short(losses: list[float]) -> str:
    return ", ".join("-" if loss is None else f"{loss:.5f}" for loss in losses[:3]) + ", …"
