"""Where the workers of `fourmin run` go: the launch options, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fourmin.base.errors import FourminError
from fourmin.campaign.events import Note, Observer, Observers
from fourmin.campaign.execute import MAX_RESTARTS
from fourmin.campaign.prepare import Request, resolve_configuration
from fourmin.launch import Choice, Launcher, Surroundings, load_launcher
from fourmin.launch.site import Site
from fourmin.recipe.configuration import Configuration

if TYPE_CHECKING:
    from fourmin.campaign.jobs import Submission


@dataclass(frozen=True)
class Placement:
    """The launch options of `fourmin run`."""

    launcher: str
    site: Site
    site_file: Path | None = None
    address: str = ""
    runs_per_job: int | None = None
    max_restarts: int = MAX_RESTARTS

    def load(self, name: str, observer: Observer | None = None) -> Launcher:
        """The launcher of a name; what it has to say goes to `observer`."""
        host, _, port = self.address.partition(":")
        if port and not port.isdigit():
            raise FourminError(f"--address {self.address!r} is no HOST:PORT")
        told = observer or Observers()
        surroundings = Surroundings(
            self.site, lambda text: told.take(Note(text)), host, int(port or 0)
        )
        return load_launcher(name, surroundings)

    def tell(self, choice: Choice, observer: Observer) -> None:
        """Say which launcher was taken, where the user left that open."""
        if self.launcher == "auto":
            observer.take(Note(f"launcher {choice.name}: {choice.reason}"))

    def submission(
        self,
        request: Request,
        existing: Path | None,
        base: str | None,
        configuration: Configuration,
    ) -> Submission:
        """What is to be submitted to Slurm."""
        from fourmin.campaign.jobs import Submission

        results = request.results_dir if existing is None else existing.absolute().parent
        arguments = self.arguments(request, existing, base)
        return Submission(configuration, self.site, arguments, results)

    def arguments(
        self, request: Request, existing: Path | None, base: str | None, root: Path | None = None
    ) -> tuple[str, ...]:
        """Options of the `fourmin run` that runs inside the cluster, without its launcher.

        Relative paths are taken below `root`, by default the present folder.
        """
        flags: list[str] = []
        values: dict[str, Any] = {
            "--site": self.site_file,
            "--runs-per-job": self.runs_per_job,
            "--max-restarts": self.max_restarts,
            "--data-dir": request.data_dir,
            "--stage": request.stage,
        }
        if existing is not None:
            values |= {"--campaign": existing, "--base": base}
        else:
            options = {
                f"--{name.replace('_', '-')}": value for name, value in request.options.items()
            }
            values |= {"--preset": request.preset, **options, "--set": request.settings}
            values |= {
                "--tuning": request.tuning,
                "--runs": request.runs,
                "--seed": request.seed,
                "--results-dir": request.results_dir,
                "--submitter": request.submitter,
                "--system": request.system_name or None,
            }
            flags += ["--practice"] if request.practice else []
        return (*_options(values, root or Path.cwd()), *flags)


def campaign_configuration(
    request: Request, existing: Path | None, placement: Placement
) -> Configuration:
    """The configuration of an existing campaign, or that which `request` means.

    Raises FourminError for what `run` would refuse in it.
    """
    from fourmin.ledger.campaign import Campaign, require_campaign

    if existing is not None:
        require_campaign(existing)
        return Campaign(existing).configuration
    return resolve_configuration(request, placement.site.slurm.gpus_per_node or None)


def _options(values: dict[str, Any], root: Path) -> list[str]:
    """Options of a command line; None is left out, a list repeated, paths are below `root`."""
    arguments = []
    for name, value in values.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None:
                text = str(root / one if isinstance(one, Path) else one)
                arguments.append(f"{name}={text}")
    return arguments
