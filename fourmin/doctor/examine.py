"""All of it: what this machine is, and what it can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.campaign.request import Placement
from fourmin.campaign.trial import told
from fourmin.doctor import machine, software
from fourmin.doctor.check import MISSING, OK, WARNING, Check
from fourmin.doctor.presets import PresetCheck, check_presets
from fourmin.launch import load_launcher
from fourmin.launch.timeouts import shortened
from fourmin.recipe.presets import DEFAULT, load_preset
from fourmin.system.hardware import usable_gpus


@dataclass(frozen=True)
class Examination:
    """What was found; `ok` where the main job, the default preset, can run."""

    checks: tuple[Check, ...]
    presets: tuple[PresetCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing that every run needs is missing, and nothing of the main job's."""
        main = next(preset for preset in self.presets if preset.name == DEFAULT)
        return main.can_run and not any(check.status == MISSING for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """As `fourmin doctor --json` prints it."""
        return {
            "ok": self.ok,
            "checks": [vars(check) for check in self.checks],
            "presets": [preset.to_json() for preset in self.presets],
        }


def examine(results_dir: Path, data_dir: Path | None) -> Examination:
    """Look at everything. Writes nothing that stays; torch is imported in another process."""
    probing = software.Probing()
    workers = load_preset(DEFAULT).procs_per_node
    found = [
        *software.python(),
        *machine.processors(),
        *machine.memory(workers),
        *machine.limits(workers),
        *machine.gpus(),
        *machine.clock(),
        *machine.results_folder(results_dir),
        *machine.caches(),
        *machine.keeping(),
        *software.launchers(),
    ]
    presets = tuple(check_presets(data_dir))
    probe = probing.result()
    found[1:1] = [*software.training_stack(probe), *software.cuda(probe)]
    return Examination(tuple(found), presets)


def examine_nodes(
    preset: str, nodes: int, launcher: str, placement: Placement, say: Callable[[str], None]
) -> Iterator[Check]:
    """Try each of several nodes by itself, as `fourmin run` does before it registers anything.

    Raises FourminError where the launcher has no nodes, or one does not come.
    """
    configuration = load_preset(preset).with_overrides({"nodes": nodes})
    configuration = configuration.resolved(usable_gpus(), keep_workers=True)
    starts = load_launcher(launcher, placement.surroundings(placement.site, say))
    trials = []
    if starts is not None:
        with closing(starts):
            trials = starts.try_nodes(configuration)
    if not trials:
        raise FourminError(
            f"launcher {launcher} reaches no other nodes from here",
            next_step="--launcher slurm inside an allocation, or torchrun",
        )
    odd = dict.fromkeys(one.name for one in trials)
    for name, what in told(trials):
        odd.pop(name, None)
        yield Check(f"node {name}", WARNING, what, "put it right, or leave the node out")
    if odd:
        message = f"{len(odd)} of {len(trials)} have nothing odd: {shortened([*odd])}"
        yield Check("nodes", OK, message)
