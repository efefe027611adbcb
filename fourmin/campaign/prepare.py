"""From a preset and a user's options to a plan that can be registered.

Everything that can be refused is refused here, before a folder appears or a worker starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.files import ensure_writable_folder
from fourmin.campaign.execute import Materials
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.on_demand import ON_DEMAND
from fourmin.datasets.report import compare_with_benchmark
from fourmin.datasets.shards import holds_shards, require_finished
from fourmin.datasets.staging import require_room
from fourmin.launch import LAUNCHER_NAMES
from fourmin.ledger.campaign import CAMPAIGN_FILE, Campaign, Plan
from fourmin.ledger.git import History, default_base
from fourmin.ledger.known import earlier_campaigns
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.recipe.settings import requested_changes
from fourmin.recipe.tuning import load_tuning
from fourmin.ruleset import CURRENT, Benchmark, load_ruleset
from fourmin.system.capture import capture_system, system_digest
from fourmin.system.hardware import usable_gpus
from fourmin.system.software import installed_version, package_digest
from fourmin.system.survey import Survey

ONE_NODE_LAUNCHERS = ("auto", "local")
"""Names of launchers that start workers on this node only."""


@dataclass(frozen=True)
class Request:
    """What a user asks for. None means that the preset decides."""

    preset: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Configuration fields that have an option of their own; None where it was not given."""
    settings: Sequence[str] = ()
    """`--set` options, as written."""
    practice: bool = False
    runs: int | None = None
    seed: int | None = None
    data_dir: Path | None = None
    results_dir: Path = Path("results")
    submitter: str = "self"
    system_name: str = ""
    launcher: str = "auto"
    """By name; whoever reaches other nodes has resolved `auto`."""
    tuning: Path | None = None
    """A file of `fourmin bench allreduce`."""
    stage: Path | None = None
    """A folder of each node to which every run copies the dataset first."""


@dataclass(frozen=True)
class Prepared:
    """A plan that may be registered, and what its runs need beside it."""

    plan: Plan
    materials: Materials


def resolve_configuration(request: Request, gpus: int | None = None) -> Configuration:
    """The whole configuration that `request` means on this machine, checked.

    `gpus` is how many each node has, where those of this machine (None) say nothing of it.

    Raises FourminError for an unknown preset, key or value, or a batch that does not fit.
    """
    preset = load_preset(request.preset)
    changes: Mapping[str, Any] = requested_changes(request.options, request.settings)
    tuning = load_tuning(request.tuning) if request.tuning else None
    if tuning:
        changes = tuning.changes(changes)
    configuration = preset.with_overrides(changes).resolved(
        usable_gpus() if gpus is None else gpus, keep_workers="procs_per_node" in changes
    )
    configuration.check()
    if tuning and request.tuning:
        tuning.check_fits(
            request.tuning,
            {
                "workers": configuration.workers,
                "workers_per_node": configuration.procs_per_node,
                "group_size": configuration.group_size,
                "device": configuration.device,
            },
        )
    benchmark = load_ruleset().benchmark(configuration.benchmark)
    if configuration.steps_per_epoch(benchmark.train_samples) == 0 and not request.practice:
        raise FourminError(
            f"a global batch of {configuration.global_batch_size} is larger than the "
            f"{benchmark.train_samples} training images of {benchmark.name}"
        )
    _check_counts_only_in_practice(request, configuration, benchmark)
    return configuration


def prepare(request: Request, survey: Survey | None = None) -> Prepared:
    """Resolve `request`, find its data and look at this machine, or at what `survey` says of one.

    Raises FourminError for whatever is missing or does not fit.
    """
    configuration = resolve_configuration(request, survey.gpus if survey else None)
    benchmark = load_ruleset().benchmark(configuration.benchmark)
    _check_requirements(configuration, benchmark, request.data_dir, request.launcher, survey)
    ensure_writable_folder(request.results_dir, "results folder")
    data_dir, manifest_path = locate_data(benchmark, request.data_dir)
    manifest = Manifest.load(manifest_path)
    # A node that stages is not this host where another had to be asked.
    if request.stage is not None and survey is None:
        require_room(request.stage, manifest)
    dataset = describe_dataset(manifest)
    differences = compare_with_benchmark(manifest, benchmark.dataset)
    if differences and not request.practice:
        raise FourminError(
            f"{data_dir} is not the dataset of benchmark {benchmark.name}",
            "; ".join(differences),
            "name the right tree with --data-dir, or run with --practice (which never counts)",
        )
    system = survey.system if survey else capture_system()
    plan = Plan(
        ruleset=CURRENT,
        benchmark=benchmark.name,
        practice=request.practice,
        runs=request.runs or benchmark.runs,
        submitter=request.submitter,
        system_name=request.system_name or default_system_name(system),
        system_digest=system_digest(system),
        package_digest=package_digest(),
        dataset=dataset,
        configuration=configuration,
        settings=tuple(request.settings),
        earlier_campaigns=tuple(earlier_campaigns(request.results_dir, benchmark.name)),
        practice_seed=request.seed,
    )
    return Prepared(plan, Materials(data_dir, manifest_path, system, request.stage))


def go_on(
    folder: Path,
    data_dir: Path | None,
    base: str | None = None,
    stage: Path | None = None,
    launcher: str = "auto",
    survey: Survey | None = None,
) -> tuple[Campaign, Materials]:
    """Open a registered campaign to run it, or to go on with it. The caller holds its lock.

    A plan that was merged gets its seeds from the commit on `base` that first had it. Raises
    FourminError when the campaign has ended, when its plan was not merged, or when data, system
    or harness are no longer those that were registered.
    """
    campaign = Campaign.reopen(folder)
    if campaign.closed:
        raise FourminError(
            f"the campaign {folder} has ended",
            "its ledger is closed, and nothing can be added",
            "`fourmin report` shows its result; `fourmin run` starts another campaign",
        )
    benchmark = load_ruleset(campaign.plan["ruleset"]).benchmark(campaign.benchmark)
    _check_requirements(campaign.configuration, benchmark, data_dir, launcher, survey)
    found, manifest = locate_data(benchmark, data_dir)
    loaded = Manifest.load(manifest)
    if stage is not None and survey is None:
        require_room(stage, loaded, campaign.digest)
    system = survey.system if survey else capture_system()
    registered = {
        "dataset": describe_dataset(loaded),
        "system_digest": system_digest(system),
        "package_digest": package_digest(),
    }
    changed = [name for name, value in registered.items() if campaign.plan[name] != value]
    if changed:
        raise FourminError(
            f"the campaign {folder} cannot go on here",
            f"no longer as registered: {', '.join(changed)}",
            "restore what was changed, or start another campaign; this one stays unfinished",
        )
    if not campaign.has_seeds:
        campaign.assign_registered_seeds(_registering_commit(campaign, base))
    return campaign, Materials(found, manifest, system, stage)


def _registering_commit(campaign: Campaign, base: str | None) -> str:
    """The first commit on the base branch's first-parent line that holds the plan as it is."""
    plan = campaign.folder / CAMPAIGN_FILE
    history = History.open(campaign.folder, base or default_base(campaign.folder))
    path = history.relative(str(plan))
    commit = history.first_commit_with(path) if path else None
    if path is None or commit is None or history.read(path) != plan.read_bytes():
        raise FourminError(
            f"the plan {plan} has not been merged",
            "its seeds come from the commit that first holds it on the base branch",
            "commit and merge it, or name the branch with --base",
        )
    return commit


def locate_checked_data(plan: Mapping[str, Any], data_dir: Path | None) -> tuple[Path, Path]:
    """The images that `plan` (campaign.json) was registered with, and their manifest.

    Raises FourminError where they are not here, or differ.
    """
    benchmark = load_ruleset(plan["ruleset"]).benchmark(plan["benchmark"])
    found, manifest = locate_data(benchmark, data_dir)
    if describe_dataset(Manifest.load(manifest)) != dict(plan["dataset"]):
        raise FourminError(
            f"{found} does not hold the images of this campaign",
            "the digests in its manifest are others",
            "name the right tree with --data-dir",
        )
    return found, manifest


def describe_dataset(manifest: Manifest) -> dict[str, Any]:
    """What campaign.json and the event log say of the data: counts and digests, no path."""
    return {
        "classes": len(manifest.class_names),
        "train_samples": len(manifest.split("train")),
        "eval_samples": len(manifest.split("val")),
        "train_digest": manifest.digest("train"),
        "eval_digest": manifest.digest("val"),
    }


def locate_data(benchmark: Benchmark, data_dir: Path | None) -> tuple[Path, Path]:
    """The folder of a benchmark's images and their manifest. Raises FourminError."""
    if data_dir is None:
        made = ON_DEMAND.get(benchmark.dataset["name"])
        if made is None:
            raise FourminError(
                f"benchmark {benchmark.name} needs {benchmark.dataset['source']}",
                "no --data-dir was given",
                "--data-dir FOLDER with train/<class>/*.jpg and val/<class>/*.jpg, after "
                "`fourmin data check FOLDER`",
            )
        data_dir = made.ensure()
    manifest = data_dir / MANIFEST_NAME
    if not data_dir.is_dir():
        raise FourminError(f"no folder {data_dir}", next_step="name the data with --data-dir")
    if holds_shards(data_dir):
        require_finished(data_dir)
    if not manifest.is_file():
        raise FourminError(
            f"{data_dir} has no manifest",
            "a run reads the manifest and never scans the images",
            f"`fourmin data check {data_dir}` writes it",
        )
    return data_dir, manifest


def default_system_name(system: Mapping[str, Any]) -> str:
    """A name from the hardware, such as `8xH100` or `2cpu`, where the user gave none."""
    hardware = system["hardware"]
    if hardware["accelerators"]:
        first = hardware["accelerators"][0]
        return f"{first['count']}x{first['model'].replace(' ', '-')}"
    return f"{hardware['processor']['cpus']}cpu-{hardware['processor']['architecture']}"


def _check_counts_only_in_practice(
    request: Request, configuration: Configuration, benchmark: Benchmark
) -> None:
    if request.practice:
        return
    only_in_practice = {
        "--runs": request.runs,
        "--max-steps": configuration.max_steps,
        "--seed": request.seed,
    }
    for option, given in only_in_practice.items():
        if given is not None:
            raise FourminError(
                f"{option} needs --practice",
                f"a campaign that counts has the benchmark's {benchmark.runs} whole runs, with "
                "assigned seeds",
            )
    if configuration.division == "closed":
        violations = benchmark.closed_violations(configuration.to_json())
        if violations:
            raise FourminError(
                "the closed division does not allow this configuration",
                "; ".join(violations),
                "--set division=open discloses it in the open division; --practice never counts",
            )


def missing_requirements(
    configuration: Configuration,
    benchmark: Benchmark,
    data_dir: Path | None,
    launcher: str = "auto",
    survey: Survey | None = None,
) -> list[FourminError]:
    """Everything that a run of `configuration` needs and that is missing where it would run."""
    return [
        *_missing_packages(configuration, survey),
        *_missing_data(benchmark, data_dir),
        *_missing_nodes(configuration, launcher),
        *_missing_gpus(configuration, usable_gpus() if survey is None else survey.gpus),
    ]


def _check_requirements(
    configuration: Configuration,
    benchmark: Benchmark,
    data_dir: Path | None,
    launcher: str,
    survey: Survey | None,
) -> None:
    """Raise one FourminError that names everything that is missing here."""
    missing = missing_requirements(configuration, benchmark, data_dir, launcher, survey)
    if len(missing) == 1:
        raise missing[0]
    if missing:
        raise FourminError(
            f"{len(missing)} things are missing for preset {configuration.preset} here",
            "\n".join(": ".join(filter(None, (one.what, one.why))) for one in missing),
            "\n".join(one.next_step for one in missing),
        )


def _missing_packages(configuration: Configuration, survey: Survey | None) -> list[FourminError]:
    needed = ["torch", "numpy", "dali" if configuration.loader == "dali" else "torchvision"]
    version = survey.system["software"].get if survey else installed_version
    missing = [name for name in needed if version(name) is None]
    if not missing:
        return []
    return [
        FourminError(
            f"training needs {', '.join(missing)}, not installed "
            + ("where the workers run" if survey else "here"),
            "the plain installation validates and reports only",
            "pip install 'fourmin[train]'",
        )
    ]


def _missing_data(benchmark: Benchmark, data_dir: Path | None) -> list[FourminError]:
    made = ON_DEMAND.get(benchmark.dataset["name"])
    if data_dir is None and made is not None:
        error = made.missing()
        return [] if error is None else [error]
    try:
        locate_data(benchmark, data_dir)
    except FourminError as error:
        return [error]
    return []


def _missing_nodes(configuration: Configuration, launcher: str) -> list[FourminError]:
    if configuration.nodes == 1 or launcher not in ONE_NODE_LAUNCHERS:
        return []
    reaching = [name for name in LAUNCHER_NAMES if name not in ONE_NODE_LAUNCHERS]
    remedies = [f"--launcher {' or '.join(reaching)}"]
    one_node = _same_batch_on_one_node(configuration)
    if one_node:
        remedies.append(f"this node alone, with the same batch and batch statistics: {one_node}")
    return [
        FourminError(
            f"{configuration.nodes} nodes need a launcher that reaches other nodes",
            f"launcher {launcher} starts workers on this node only",
            "; or ".join(remedies) or "--nodes 1",
        )
    ]


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


def _missing_gpus(configuration: Configuration, gpus: int) -> list[FourminError]:
    if configuration.device != "cuda" or configuration.procs_per_node <= gpus:
        return []
    return [
        FourminError(
            f"{configuration.procs_per_node} workers a node on GPUs, but {gpus} can be used here",
            "each worker needs a GPU of its own",
            f"--procs-per-node {gpus}"
            if gpus
            else "a machine with NVIDIA GPUs; or --set device=cpu, for practice",
        )
    ]
