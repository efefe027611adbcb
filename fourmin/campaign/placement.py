"""Where and how a campaign runs this time: nothing of it changes what its runs compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fourmin.launch import Surroundings, network
from fourmin.launch.site import Site
from fourmin.launch.timeouts import Timeouts


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
