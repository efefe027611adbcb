"""What a worker is told about the run it takes part in: a JSON file named by FOURMIN_JOB."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.config import Configuration

JOB_VARIABLE = "FOURMIN_JOB"
_PATHS = ("data_dir", "manifest", "events_log", "checkpoints", "control_socket", "scratch")


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
    control_socket: Path
    scratch: Path
    """A folder that is removed after the run."""
    stage: Path | None = None
    """A folder of each node to which the dataset is copied at the start of the run."""
    restart: int = 0
    """Number of this restart of the attempt; 0 when it starts."""
    restart_epoch: int = 0
    """The epoch whose checkpoint a restart goes on from; 0: from the start of training."""

    @property
    def path(self) -> Path:
        """Where `write` puts the job."""
        return self.scratch / "job.json"

    def write(self) -> None:
        """Write the job for the workers to read."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields["configuration"] = self.configuration.to_json()
        self.path.write_text(json.dumps(fields, default=str))

    @classmethod
    def read(cls, path: Path) -> Job:
        """The job that `write` wrote."""
        fields = json.loads(path.read_text())
        fields["configuration"] = Configuration.from_json(fields["configuration"])
        for name in _PATHS:
            fields[name] = Path(fields[name])
        fields["stage"] = None if fields["stage"] is None else Path(fields["stage"])
        return cls(**fields)
