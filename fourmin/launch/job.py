"""What a worker is told about the run it takes part in: a JSON file named by FOURMIN_JOB."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.launch.timeouts import Timeouts
from fourmin.recipe.configuration import Configuration

JOB_VARIABLE = "FOURMIN_JOB"
_COMPLETE = re.compile(r"epoch-([1-9][0-9]{0,8})\Z")


@dataclass(frozen=True)
class Job:
    """One attempt at one run: what to train, with which seed, from where, and who listens."""

    configuration: Configuration
    ruleset: str
    run: int
    attempt: int
    seed: int
    campaign: str
    practice: bool
    submitter: str
    system_name: str
    system: Mapping[str, Any]
    system_digest: str
    package_digest: str
    dataset: Mapping[str, Any]
    data_dir: Path
    manifest: Path
    events_log: Path
    checkpoints: Path
    """The folder for checkpoints; made when there is one."""
    scratch: Path
    """A folder that is removed after the run."""
    clocks: Mapping[str, Any] | None = None
    """Each node's clock against the command's, where there are several nodes."""
    stage: Path | None = None
    """A folder of each node to which the dataset is copied at the start of the run."""
    restart: int = 0
    """Number of this restart of the attempt; 0 when it starts."""
    restart_epoch: int = 0
    """The epoch whose checkpoint a restart goes on from; 0: from the start of training."""
    imports_seconds: float = Timeouts.imports
    """How long the workers may take to import what they need and to join each other."""
    replay: bool = False
    """Whether only the first `max_steps` steps count: no evaluation, one epoch at most."""
    segments: tuple[int, ...] = ()
    """In a replay, epochs to train instead, each from its start; the last state is evaluated."""
    segment_steps: int | None = None
    """So many steps of each of them; the last state is then that in `starts`."""
    starts: Path | None = None
    """The folder of the states that they start from."""
    keep_states: Path | None = None
    """A folder in which the state after each epoch is kept."""
    profile: int | None = None
    """Of how many steps rank 0 leaves a trace beside the log (practice only)."""

    @property
    def path(self) -> Path:
        return self.scratch / "job.json"

    @property
    def control_socket(self) -> Path:
        """Where the workers of a node and what started them talk."""
        return self.scratch / "control"

    @property
    def manifest_image(self) -> Path:
        """The manifest as all workers of a node map it; made before they start."""
        return self.scratch / "manifest"

    def write(self) -> None:
        self.path.write_text(json.dumps(self.to_json()))

    @classmethod
    def read(cls, path: Path) -> Job:
        return cls.from_json(json.loads(path.read_text()))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; paths are texts."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields["configuration"] = self.configuration.to_json()
        return {
            name: str(value) if isinstance(value, Path) else value for name, value in fields.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        fields = dict(data)
        fields["configuration"] = Configuration.from_json(fields["configuration"])
        for field in dataclasses.fields(cls):
            if str(field.type).startswith("Path") and fields[field.name] is not None:
                fields[field.name] = Path(fields[field.name])
        fields["segments"] = tuple(fields["segments"])
        return cls(**fields)


def checkpoint_name(epoch: int) -> str:
    return f"epoch-{epoch}"


def state_file(folder: Path, campaign: str, run: int, epoch: int) -> Path:
    """Where the state of a run after an epoch is kept below `folder`."""
    return folder / campaign / f"run-{run}" / f"epoch-{epoch}.state"


def complete_checkpoints(folder: Path) -> list[int]:
    """The epochs after which a complete checkpoint was made, in order."""
    found = (_COMPLETE.match(path.name) for path in folder.glob("epoch-*"))
    return sorted(int(match.group(1)) for match in found if match)
