"""From what a user asks to what will be done: all that can be refused is refused here.

Nothing is written, registered or sent: `fourmin run --dry-run` ends here too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.files import require_writable
from fourmin.base.processes import Scratch
from fourmin.campaign.existing import registered_beacon, require_going_on
from fourmin.campaign.jobs import Submission, inner_options
from fourmin.campaign.keeping import describe_keeping, require_keeping
from fourmin.campaign.naming import NOBODY, names, require_folder_names
from fourmin.campaign.request import Existing, New, Placement, Request, Wanted
from fourmin.campaign.requirements import (
    Data,
    Place,
    look_for_data,
    missing,
    refusals,
    require,
    require_dataset,
)
from fourmin.datasets.staging import require_room_for_copy
from fourmin.estimate.hybrid import with_threshold
from fourmin.estimate.profile import DEFAULT_PROFILE, load_profile
from fourmin.launch import Choice, Launcher, choose_launcher, load_launcher, load_submitter
from fourmin.launch.registry import kind_of
from fourmin.recipe.algorithms import is_asynchronous
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.fields import is_auto
from fourmin.recipe.presets import DEFAULT, load_preset
from fourmin.recipe.settings import keep_statistics, requested_changes
from fourmin.recipe.steps import DECIDED_THERE, describe_step, with_step
from fourmin.recipe.tuning import load_tuning
from fourmin.ruleset import Benchmark, load_ruleset
from fourmin.system.capture import capture_system
from fourmin.system.fitness import few_descriptors, no_loopback, no_semaphores
from fourmin.system.hardware import usable_gpus


@dataclass(frozen=True)
class Prepared:
    """Everything that is decided before a campaign is registered, or goes on."""

    wanted: Wanted
    placement: Placement
    configuration: Configuration
    benchmark: Benchmark
    runs: int
    train_samples: int
    """Of the images that training will read."""
    choice: Choice
    launcher: Launcher | None
    """What starts the workers; None where that is never done from here."""
    submission: Submission | None
    """What is sent to a cluster, where the command itself has to be sent first."""
    system: Mapping[str, Any] | None
    """Where the workers are; None where it cannot be seen from here."""
    data: Data | None
    """None where they are made when the campaign starts, or cannot be seen from here."""
    step: str
    """One line: the training step, and why it is that one."""
    refused: tuple[FourminError, ...]

    @property
    def under_way(self) -> bool:
        """Whether a run has started and has no outcome: its clock runs."""
        if isinstance(self.wanted, New):
            return False
        slots = self.wanted.campaign.slots()
        return any(slot.started and slot.status is None for slot in slots)

    def warnings(self) -> Iterator[str]:
        """What is not refused, but better known before a campaign begins."""
        if self.placement.keep_states is not None:
            yield describe_keeping(self.placement.keep_states, self.configuration, self.runs)
        if isinstance(self.wanted, Existing):
            return
        request, configuration = self.wanted.request, self.configuration
        asked = _asked(request)[0].procs_per_node
        if configuration.nodes == 1 and configuration.procs_per_node < asked:
            yield (
                f"warning: {configuration.procs_per_node} of the preset's {asked} workers: no more "
                f"have a processor each and share {configuration.global_batch_size} images equally"
            )
        if request.submitter in (None, NOBODY) and not request.practice:
            yield (
                "warning: without --submitter NAME this campaign can be reported, but not submitted"
            )

    def require(self) -> None:
        """Raise one FourminError that says all that is refused."""
        require(self.refused, self.configuration.preset)

    def close(self) -> None:
        """Let go of the nodes."""
        if self.launcher is not None:
            self.launcher.close()


def prepare(
    wanted: Wanted,
    placement: Placement | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Prepared:
    """Decide everything, and find what is missing or wrong.

    Raises FourminError for what makes no sense at all, so that there is no plan to be shown.
    """
    placement = placement or Placement()
    if isinstance(wanted, Existing):
        asked = wanted.campaign.configuration
    else:
        asked, _ = _asked(wanted.request)
    nodes = asked.nodes
    choice = choose_launcher(placement.launcher, nodes)
    site = placement.site.over(choice.name, placement.job_options)
    launcher = load_launcher(choice.name, placement.surroundings(site, say))
    submitter = load_submitter(choice.name, site) if choice.submits else None

    refused: list[FourminError] = []
    place, system = Place(choice.name), None
    if submitter is not None:
        place = Place(choice.name, submitter.files_here, gpus=submitter.gpus_per_node)
    elif launcher is not None:
        try:
            Scratch().remove()
            if too_few := few_descriptors(nodes):  # it would stand still rather than fail
                raise FourminError("a run cannot open its files", too_few, "ulimit -n 65536")
            if why := no_semaphores():
                raise FourminError("a run cannot start its workers", why, "make room in /dev/shm")
            if choice.name == "local" and (why := no_loopback()):
                raise FourminError("workers of one node cannot meet", why, "mend /etc/hosts")
            survey = launcher.survey(nodes)
            place = Place.seen(choice.name, survey)
            system = survey.system if survey else capture_system()
        except FourminError as error:
            refused.append(error)

    if isinstance(wanted, Existing):
        plan, configuration = wanted.campaign.plan, wanted.campaign.configuration
        benchmark = load_ruleset(plan.ruleset).benchmark(plan.benchmark)
        runs, samples = plan.runs, plan.dataset["train_samples"]
        step = f"step: {configuration.step}, as registered"
    else:
        configuration = resolve_configuration(wanted.request, place)
        step = describe_step(configuration, asked.step, place.against_fast)
        if submitter is not None and is_auto(asked.device) and is_auto(asked.step):
            # This host's device is not that of the job, which plans anew.
            step = DECIDED_THERE
        if is_auto(configuration.step) and submitter is None:
            refused.append(
                FourminError(
                    "no training step can be chosen",
                    "it is chosen by the GPUs of the nodes, and they could not be looked at",
                    "--set step=fast or --set step=eager",
                )
            )
        benchmark = load_ruleset().benchmark(configuration.benchmark)
        runs, samples = wanted.request.runs or benchmark.runs, benchmark.train_samples
    data, without_data = look_for_data(benchmark, place, placement.data_dir)
    refused += [*missing(configuration, place), *without_data]
    if isinstance(wanted, Existing):
        refused += _against_existing(wanted, place, system, data)
    else:
        samples = len(data.manifest.split("train")) if data else samples
        refused += _against_new(wanted, place, benchmark, data)
        if not wanted.request.practice:
            named = names(wanted.request, nodes, system)
            refused += refusals(lambda: require_folder_names(*named))
    batch = max(own.global_batch_size for _, own in configuration.stretches())
    if batch > samples:
        refused.append(
            FourminError(
                f"a global batch of {batch} is larger than the {samples} training images",
                next_step="--set global_batch_size=N",
            )
        )
    if placement.stage is not None and place.here:
        stage = placement.stage
        refused += refusals(lambda: _require_staging(stage, wanted, data))
    if placement.profile and is_asynchronous(configuration):
        refused.append(
            FourminError(
                f"no trace of algorithm={configuration.algorithm}",
                "worker 0 takes no steps itself",
                "without --profile, or --set algorithm=synchronous",
            )
        )
    if placement.keep_states is not None:
        kept = placement.keep_states
        refused += refusals(lambda: require_keeping(kept, configuration, runs, here=place.here))
    submission = None
    if submitter is not None:
        submission = Submission(
            submitter=submitter,
            launcher=choice.name,
            configuration=configuration,
            options=inner_options(wanted, placement, submitter.root),
            results=submitter.root / wanted.results,
        )
        refused += _against_submitting(submission)
    return Prepared(
        wanted=wanted,
        placement=placement,
        configuration=configuration,
        benchmark=benchmark,
        runs=runs,
        train_samples=samples,
        choice=choice,
        launcher=launcher,
        submission=submission,
        system=system,
        data=data,
        step=step,
        refused=tuple(refused),
    )


def resolve_configuration(request: Request, place: Place | None = None) -> Configuration:
    """The whole configuration that `request` means for workers in `place` (None: here), checked.

    This machine's GPUs are counted where those of `place` cannot be seen. The step is then still
    AUTO, unless the configuration decides it.

    Raises FourminError for an unknown preset, key or value, or a batch that does not fit.
    """
    asked, changes = _asked(request)
    place = place or Place.seen()
    gpus = usable_gpus() if place.gpus is None else place.gpus
    configuration = keep_statistics(
        load_preset(asked.preset),
        asked.resolved(gpus, keep_workers="procs_per_node" in changes),
        changes,
    )
    configuration = with_step(configuration, place.against_fast)
    if is_auto(configuration.hybrid_threshold):
        # Of a machine that is the same wherever the plan is made: a job makes it again.
        configuration = with_threshold(configuration, load_profile(DEFAULT_PROFILE))
    open_step = is_auto(configuration.step)
    (replace(configuration, step="eager") if open_step else configuration).check()
    if request.tuning:
        load_tuning(request.tuning).check_fits(
            request.tuning,
            {
                "workers": configuration.workers,
                "workers_per_node": configuration.procs_per_node,
                "group_size": configuration.group_size,
                "device": configuration.device,
            },
        )
    benchmark = load_ruleset().benchmark(configuration.benchmark)
    _check_counts_only_in_practice(request, configuration, benchmark)
    return configuration


def _asked(request: Request) -> tuple[Configuration, Mapping[str, Any]]:
    """The preset with what `request` changes in it, and those changes; nothing is checked."""
    changes: Mapping[str, Any] = requested_changes(request.options, request.settings)
    if request.tuning:
        changes = load_tuning(request.tuning).changes(changes)
    return load_preset(request.preset or DEFAULT).with_overrides(changes), changes


def _check_counts_only_in_practice(
    request: Request, configuration: Configuration, benchmark: Benchmark
) -> None:
    if request.runs is not None and request.runs < 1:
        raise FourminError(f"--runs {request.runs}: a campaign has at least one run")
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
    if configuration.model not in benchmark.models:
        raise FourminError(
            f"{configuration.model} is not a model of the benchmark {benchmark.name}",
            "in no division would a campaign of it be valid (HYP001)",
            f"--set model={benchmark.models[0]}; --practice never counts",
        )
    if configuration.division == "closed":
        violations = benchmark.closed_violations(configuration.to_json())
        if violations:
            raise FourminError(
                "the closed division does not allow this configuration",
                "; ".join(violations),
                "--set division=open discloses it in the open division; --practice never counts",
            )


def _against_new(
    wanted: New, place: Place, benchmark: Benchmark, data: Data | None
) -> Iterator[FourminError]:
    """Why the campaign could not be registered."""
    if place.files:
        yield from refusals(lambda: require_writable(wanted.results, "results folder"))
    if wanted.request.practice:
        return
    if data is not None:
        yield from refusals(lambda: require_dataset(data, benchmark))
    if wanted.request.submitter is None and benchmark.name != load_preset(DEFAULT).benchmark:
        yield FourminError(
            f"a campaign of benchmark {benchmark.name} that counts needs a submitter",
            "without one it could be reported, but never submitted",
            '--submitter NAME, or submitter = "NAME" in ~/.config/fourmin/config.toml; or '
            "--submitter self, if it is never to be submitted",
        )


def _against_existing(
    wanted: Existing, place: Place, system: Mapping[str, Any] | None, data: Data | None
) -> Iterator[FourminError]:
    """Why the campaign could not go on; elsewhere its package, data and merge may be others."""
    campaign = wanted.campaign
    if not place.files and not campaign.closed:
        return
    yield from refusals(lambda: require_going_on(campaign, system, data))
    yield from refusals(lambda: require_writable(wanted.folder, "campaign's folder"))
    if campaign.history.seeds is None and not campaign.closed:
        yield from refusals(lambda: registered_beacon(campaign, wanted.base))


def _require_staging(stage: Path, wanted: Wanted, data: Data | None) -> None:
    digest = wanted.campaign.digest if isinstance(wanted, Existing) else ""
    if data is None:
        require_writable(stage, "staging folder")
    else:
        require_room_for_copy(stage, data.manifest, digest)


def _against_submitting(submission: Submission) -> Iterator[FourminError]:
    kind = kind_of(submission.launcher)
    if kind.program and shutil.which(kind.program) is None:
        yield FourminError(
            f"{kind.program} is not on PATH", next_step=f"load {kind.title}'s module"
        )
    yield from refusals(submission.describe)
