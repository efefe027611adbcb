"""What a run needs, and what of it is missing where its workers would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.installation import install
from fourmin.base.text import command
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.on_demand import ON_DEMAND
from fourmin.datasets.report import compare_with_benchmark
from fourmin.datasets.shards import holds_shards, require_finished
from fourmin.launch.registry import LAUNCHERS
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.steps import against_machine, against_this_machine
from fourmin.results.plan import Plan
from fourmin.ruleset import Benchmark, load_ruleset
from fourmin.system.hardware import usable_gpus
from fourmin.system.software import installed_version
from fourmin.system.survey import Survey


@dataclass(frozen=True)
class Place:
    """What is seen from here of where workers would be; None is what cannot be seen."""

    launcher: str = "local"
    files: bool = True
    """Whether its files are those of this host."""
    version: Callable[[str], str | None] | None = None
    """The version of an installed part, by its name."""
    gpus: int | None = None
    """How many a process on each node may use."""
    against_fast: str | None = None
    """Why the fast step cannot run there: see `recipe.steps.against_machine`."""
    here: bool = False
    """Whether it is this Python, on this machine."""

    @classmethod
    def seen(cls, launcher: str = "local", survey: Survey | None = None) -> Place:
        """The node that was asked; without a survey, this machine."""
        if survey is not None:
            return cls(
                launcher,
                version=survey.system["software"].get,
                gpus=survey.gpus,
                against_fast=against_machine(survey.capabilities, survey.triton),
            )
        return cls(
            launcher,
            version=installed_version,
            gpus=usable_gpus(),
            against_fast=against_this_machine(),
            here=True,
        )

    @property
    def other_loader(self) -> str:
        """The option that a run there needs, since all but DALI is installed; or ''."""
        there = [*map(self.version or str, ("torch", "numpy", "torchvision", "dali"))]
        return "--loader torchvision" if all(there[:3]) and not there[3] else ""


@dataclass(frozen=True)
class Data:
    """Images that are there: their folder, and what its manifest says."""

    folder: Path
    manifest: Manifest

    @property
    def path(self) -> Path:
        """The manifest's."""
        return self.folder / MANIFEST_NAME


def missing(configuration: Configuration, place: Place) -> Iterator[FourminError]:
    """Everything but data that a run of `configuration` needs and that is missing in `place`."""
    yield from _missing_packages(configuration, place)
    yield from _missing_nodes(configuration, place.launcher)
    yield from _missing_gpus(configuration, place.gpus)
    # Where there is no GPU at all, that has been said.
    if configuration.step == "fast" and place.gpus and place.against_fast:
        yield FourminError(
            f"step=fast cannot run {'here' if place.here else 'where the workers run'}",
            place.against_fast,
            "--set step=eager",
        )


def require(refused: Sequence[FourminError], preset: str) -> None:
    """Raise one FourminError that says all that is refused; nothing where that is nothing."""
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise FourminError(
            f"{len(refused)} things are missing or wrong for preset {preset} here",
            "\n".join(": ".join(filter(None, (one.what, one.why))) for one in refused),
            "\n".join(filter(None, (one.next_step for one in refused))),
        )


def refusals(check: Callable[[], object]) -> list[FourminError]:
    """The FourminError that `check` raises, if it does."""
    try:
        check()
    except FourminError as error:
        return [error]
    return []


def find_data(benchmark: Benchmark, data_dir: Path | None) -> Data | None:
    """The images in `data_dir`; None where none is named and they will be made.

    Raises FourminError.
    """
    if data_dir is None:
        if benchmark.dataset["name"] in ON_DEMAND:
            return None
        raise FourminError(
            f"benchmark {benchmark.name} needs {benchmark.dataset['source']}",
            "no --data-dir was given",
            "--data-dir FOLDER: `fourmin data prepare SOURCE... FOLDER` makes it; a "
            "tree of train/<class>/ and val/<class>/ needs `fourmin data check FOLDER`",
        )
    if not data_dir.is_dir():
        raise FourminError(f"no folder {data_dir}", next_step="name the data with --data-dir")
    if holds_shards(data_dir):
        require_finished(data_dir)
    path = data_dir / MANIFEST_NAME
    if not path.is_file():
        raise FourminError(
            f"{data_dir} has no manifest",
            "a run reads the manifest and never scans the images",
            f"`{command('data', 'check', data_dir)}` writes it",
        )
    return Data(data_dir, Manifest.load(path))


def look_for_data(
    benchmark: Benchmark, place: Place, data_dir: Path | None
) -> tuple[Data | None, list[FourminError]]:
    """The images, where they can be seen from here, and why a run could not have them."""
    if data_dir is not None and not place.files:
        return None, []
    try:
        found = find_data(benchmark, data_dir)
    except FourminError as error:
        return None, [error]
    if found is None and place.files:
        absent = ON_DEMAND[benchmark.dataset["name"]].missing()
        return None, [absent] if absent else []
    return found, []


def get_data(benchmark: Benchmark, data_dir: Path | None) -> Data:
    """The images in `data_dir`, or those that fourmin makes now. Raises FourminError."""
    found = find_data(benchmark, data_dir)
    if found is None:
        found = find_data(benchmark, ON_DEMAND[benchmark.dataset["name"]].ensure())
    assert found is not None
    return found


def get_registered_data(plan: Plan, data_dir: Path | None) -> Data:
    """The images that `plan` was registered with.

    Raises FourminError where they are not here, or differ.
    """
    benchmark = load_ruleset(plan.ruleset).benchmark(plan.benchmark)
    data = get_data(benchmark, data_dir)
    if not data.manifest.fits(plan.dataset):
        raise FourminError(
            f"{data.folder} does not hold the images of this campaign",
            "the digests in its manifest are others",
            "name the right tree with --data-dir",
        )
    return data


def require_dataset(data: Data, benchmark: Benchmark) -> None:
    """Raise FourminError where the images are not the benchmark's."""
    differences = compare_with_benchmark(data.manifest, benchmark.dataset)
    if differences:
        raise FourminError(
            f"{data.folder} is not the dataset of benchmark {benchmark.name}",
            "; ".join(differences),
            f"--data-dir with {benchmark.dataset['source']}; or --practice, which never counts",
        )


def _missing_packages(configuration: Configuration, place: Place) -> Iterator[FourminError]:
    if place.version is None:
        return
    needed = ["torch", "numpy", "dali" if configuration.loader == "dali" else "torchvision"]
    absent = [name for name in needed if place.version(name) is None]
    if absent:
        yield FourminError(
            f"training needs {', '.join(absent)}, not installed "
            + ("here" if place.here else "where the workers run"),
            "" if place.other_loader else "the plain installation validates and reports only",
            ", or ".join(filter(None, (place.other_loader, install("train")))),
        )


def _missing_nodes(configuration: Configuration, launcher: str) -> Iterator[FourminError]:
    if configuration.nodes == 1 or not LAUNCHERS[launcher].one_node:
        return
    reaching = [name for name, kind in LAUNCHERS.items() if not kind.one_node]
    remedies = [f"--launcher {' or '.join(reaching)}"]
    one_node = _same_batch_on_one_node(configuration)
    if one_node:
        remedies.append(f"this node alone, with the same batch and batch statistics: {one_node}")
    yield FourminError(
        f"{configuration.nodes} nodes need a launcher that reaches other nodes",
        f"launcher {launcher} starts workers on this node only",
        "; or ".join(remedies),
    )


def _same_batch_on_one_node(configuration: Configuration) -> str:
    """Options for one node of the preset's kind that keep what training computes, or ''.

    Each worker takes the images that share batch statistics in the preset, so often that they
    make the global batch.
    """
    shared = configuration.local_batch_size * configuration.bn_span
    steps, rest = divmod(configuration.global_batch_size, configuration.procs_per_node * shared)
    if rest or not steps:
        return ""
    options = f"--nodes 1 --set gradient_accumulation_steps={steps}"
    return options if configuration.bn_span == 1 else f"{options} --set bn_span=1"


def _missing_gpus(configuration: Configuration, gpus: int | None) -> Iterator[FourminError]:
    workers = configuration.procs_per_node
    if gpus is None or configuration.device != "cuda" or workers <= gpus:
        return
    yield FourminError(
        f"{workers} workers a node on GPUs, but {gpus} can be used here",
        "each worker needs a GPU of its own",
        f"--procs-per-node {gpus}"
        if gpus
        else "a machine with NVIDIA GPUs; or --set device=cpu, for practice",
    )
