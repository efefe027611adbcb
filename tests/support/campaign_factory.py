"""Campaigns of the benchmark `digits` without training: real writers, a fake clock, milliseconds.

`make_campaign` writes what `fourmin run` would have written, through the same ledger and log
writers, so that rules and reports can be tested on as many campaigns as they need.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from fourmin.base.canonical import sha256_hex
from fourmin.base.text import how_many
from fourmin.campaign.registration import campaign_name
from fourmin.ledger.campaign import EVENTS_FILE, Campaign, RunState
from fourmin.ledger.known import KnownCampaign
from fourmin.log import keys
from fourmin.log.writer import EventLogWriter
from fourmin.recipe.algorithms import update_name
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.recipe.presets import load_preset
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.results.plan import EarlierCampaign, Plan, chips_of
from fourmin.results.rcp import references
from fourmin.results.run_result import RunFacts
from fourmin.results.summary import summarize
from fourmin.ruleset import load_ruleset
from fourmin.system.capture import system_digest

CREATED_MS = 1_700_000_000_000
SYSTEM: dict[str, Any] = {
    "hardware": {
        "processor": {"model": "Test CPU", "architecture": "x86_64", "sockets": 1, "cpus": 2},
        "memory_gib": 16,
        "network": ["ethernet 10 Gbit/s"],
        "accelerators": [],
        "driver": None,
    },
    "software": {
        "fourmin": "0.1.0",
        "python": "3.11.7",
        "torch": "2.14.1",
        "torchvision": "0.29.1",
        "dali": "2.4.0",
        "numpy": "2.4.6",
        "pillow": "13.0.0",
        "nccl": None,
        "cudnn": None,
        "cuda": None,
        "operating_system": {"name": "Test Linux", "kernel": "6.1.0"},
    },
    "environment": {},
    "interpreter_changes": [],
}


RESNET50: dict[str, Any] = {
    "benchmark": "resnet50",
    "model": "resnet50",
    "global_batch_size": 3264,
    "base_learning_rate": 10.5,
    "warmup_epochs": 2.0,
    "decay_epochs": 37.0,
    "max_epochs": 48,
    "image_size": 224,
    "eval_resize": 256,
    "augmentation": "random-resized-crop",
}
"""What ResNet-50 at batch 3,264 changes in the configuration of `digits`."""
PACE = {"digits": 1, "resnet50": 10_000, "fractals-resnet50": 10_000}
"""How many times as long epochs and evaluations take as on `digits`: two cores can do them."""


@dataclass
class Clock:
    """Nanoseconds since the epoch and since boot; time passes only by `pass_ms`."""

    now: int = CREATED_MS * 1_000_000
    since_boot: int = 5_000_000_000

    def pass_ms(self, milliseconds: float) -> None:
        self.now += int(milliseconds * 1e6)
        self.since_boot += int(milliseconds * 1e6)

    def time_ns(self) -> int:
        return self.now

    def monotonic_ns(self) -> int:
        return self.since_boot


@dataclass
class Story:
    """What happens in a campaign. Run numbers count from 1."""

    runs: int = 5
    practice: bool = False
    benchmark: str = "digits"
    """`digits`, `resnet50` or `fractals-resnet50`."""
    epochs: int | Sequence[int] = 12
    """Epochs until the target, one number or one for each run: those of an evaluation."""
    not_converged: Collection[int] = ()
    """Runs that end with their schedule, without the target."""
    aborted: Collection[int] = ()
    """Runs whose worker dies in the second epoch."""
    retried: Collection[int] = ()
    """Runs of which an attempt ends before its start, each as often as it is named."""
    killed_in: int | None = None
    """The run in which everything is killed: nothing is written after its second epoch began."""
    restarts: Collection[Sequence[int]] = ()
    """(run, epoch) each: the run is cut off in the epoch after `epoch`, and goes on after it."""
    another_boot: bool = False
    """Whether restarts are on another machine, whose monotonic clock began anew."""
    closed: bool = True
    """Whether the campaign is closed; without it, all runs have ended and nothing follows."""
    epoch_ms: float = 300.0
    disturbed: Sequence[int] = ()
    """Runs that take five times as long."""
    """On `digits`; see `PACE`."""
    submitter: str = "self"
    system_name: str = "2cpu-x86_64"
    system: Mapping[str, Any] = field(default_factory=lambda: SYSTEM)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    created_ms: int = CREATED_MS
    beacon: str = "5e" * 32
    nonce: str = "0c" * 16
    """With the time it makes two campaigns of one story two."""
    name: str | None = None
    """The campaign's folder; without it, as `fourmin run` names it."""
    chance: int | None = None
    """Decides times and accuracies; without it the seeds do, which the whole plan decides."""
    ranked_batch: int | None = None
    cache_cleared: bool = False
    joules: Sequence[float] = ()
    """Measured energy of each run; without it, there is no meter."""
    earlier: Sequence[KnownCampaign | Sequence[Any]] = ()


def make_campaign(results: Path, story: Story | None = None, **changes: Any) -> Path:
    """Write a campaign below `results`; returns its folder.

    By default a closed campaign that counts, of 5 runs that converged. `changes` are fields of
    `Story`.
    """
    told = dataclasses.replace(story or Story(), **changes)
    clock = Clock(told.created_ms * 1_000_000)
    results.mkdir(parents=True, exist_ok=True)
    with _deterministic(clock, told):
        campaign = Campaign.create(results, _plan(told, clock.now // 1_000_000))
        ended = _tell(campaign, told, clock)
        if ended and told.closed:
            clock.pass_ms(3)
            found = [_facts(campaign, slot) for slot in campaign.slots()]
            campaign.close(summarize(campaign.plan, campaign.digest, campaign.head, found))
    return campaign.folder


def system_description(submitter: str = "self", system_name: str = "2cpu-x86_64") -> dict[str, Any]:
    """A valid system.json for the factory's campaigns."""
    return {
        "schema_version": 1,
        "submitter": submitter,
        "division": "closed",
        "status": "onprem",
        "system_name": system_name,
        "number_of_nodes": 1,
        "host_processors_per_node": 1,
        "host_processor_model_name": "Test CPU",
        "host_processor_core_count": 2,
        "host_memory_capacity": "16 GB",
        "host_storage_type": "NVMe SSD",
        "accelerators_per_node": 0,
        "accelerator_model_name": "N/A",
        "framework": "PyTorch 2.14.1",
        "operating_system": "Test Linux",
    }


@contextmanager
def _deterministic(clock: Clock, story: Story) -> Iterator[None]:
    module = "fourmin.ledger.campaign"
    with ExitStack() as stack:
        stack.enter_context(mock.patch(f"{module}.time", clock))
        stack.enter_context(mock.patch(f"{module}.new_beacon", return_value=story.beacon))
        stack.enter_context(mock.patch(f"{module}.remember"))
        stack.enter_context(mock.patch("os.fsync"))
        yield


def _plan(story: Story, created_ms: int = CREATED_MS) -> Plan:
    ruleset = load_ruleset()
    stated = ruleset.benchmark(story.benchmark).dataset
    described = ("classes", "train_samples", "eval_samples", "train_digest", "eval_digest")
    unstated = {"train_digest": sha256_hex(b"train"), "eval_digest": sha256_hex(b"val")}
    dataset = {name: stated.get(name) or unstated[name] for name in described}
    base = RESNET50 if story.benchmark == "resnet50" else {}
    configuration = dataclasses.replace(
        load_preset("digits" if base else story.benchmark),
        **{"device": "cpu", "precision": "bf16", "decoder": "cpu", "step": "eager"}
        | {"procs_per_node": 2, **base}
        | dict(story.configuration),
    )
    earlier = [
        known if isinstance(known, KnownCampaign) else KnownCampaign(*known)
        for known in story.earlier
    ]
    chip, chips = chips_of(configuration.to_json(), story.system["hardware"])
    return Plan(
        ruleset=ruleset.version,
        benchmark=story.benchmark,
        division=configuration.division,
        practice=story.practice,
        preset=configuration.preset,
        settings=[],
        runs=story.runs,
        submitter=story.submitter,
        system=story.system_name,
        name=_name(story, configuration.preset, created_ms),
        nonce=story.nonce,
        chip=chip,
        chips=chips or 1,
        system_digest=system_digest(story.system),
        package_digest=sha256_hex(b"package"),
        dataset=dataset | dict(story.dataset),
        configuration=configuration.to_json(),
        configuration_digest=configuration.digest(),
        earlier_campaigns=[EarlierCampaign(k.campaign, k.head) for k in earlier if not k.practice],
        practice_campaigns=[EarlierCampaign(k.campaign, k.head) for k in earlier if k.practice],
        created_ms=created_ms,
        ranked_batch=story.ranked_batch,
    )


def _name(story: Story, preset: str, created_ms: int) -> str:
    """As `fourmin run` names a folder, but the same for the same story."""
    if story.name is not None:
        return story.name
    with mock.patch("secrets.token_hex", return_value=sha256_hex(repr(story).encode())[:6]):
        return campaign_name(preset, story.practice, created_ms)


def _tell(campaign: Campaign, story: Story, clock: Clock) -> bool:
    """Every run in turn; False when the story ends within one."""
    for slot in campaign.slots():
        clock.pass_ms(2)
        attempt = campaign.intend(slot)
        for _ in range(list(story.retried).count(slot.run)):
            with _log(campaign, slot, clock) as log:
                _begin(log, campaign, slot, attempt, story)
            slot.attempts += 1
            clock.pass_ms(50)
            attempt = campaign.intend(slot)
        points = [epoch for run, epoch in story.restarts if run == slot.run]
        with _log(campaign, slot, clock) as log:
            cut = points[0] + 1 if points else None
            play_run(log, campaign, slot, attempt, story, clock, cut_in=cut)
        for number, epoch in enumerate(points, start=1):
            clock.pass_ms(1500)
            campaign.restart(slot, attempt)
            clock.pass_ms(2500)
            if story.another_boot:
                clock.since_boot = 7_000_000_000
            cut = points[number] + 1 if number < len(points) else None
            with _log(campaign, slot, clock, resume=True) as log:
                play_restart(log, campaign, slot, number, epoch, story, clock, cut_in=cut)
        if slot.run == story.killed_in:
            return False
        heard = clock.now // 1_000_000 + 1
        clock.pass_ms(40)
        campaign.finish(slot, attempt, _facts(campaign, slot), heard)
    return True


def _log(
    campaign: Campaign, slot: RunState, clock: Clock, *, resume: bool = False
) -> EventLogWriter:
    return EventLogWriter(
        campaign.run_folder(slot.run) / EVENTS_FILE,
        resume=resume,
        wall_clock=clock.time_ns,
        monotonic=clock.monotonic_ns,
    )


def _facts(campaign: Campaign, slot: RunState) -> RunFacts:
    return RunFacts.read(campaign.run_folder(slot.run) / EVENTS_FILE)


def _begin(
    log: EventLogWriter, campaign: Campaign, slot: RunState, attempt: int, story: Story
) -> None:
    plan = campaign.plan
    log.point(keys.SUBMISSION_BENCHMARK, plan.benchmark)
    log.point(keys.SUBMISSION_ORG, plan.submitter)
    log.point(keys.SUBMISSION_DIVISION, plan.division)
    log.point(keys.SUBMISSION_STATUS, "onprem")
    log.point(keys.SUBMISSION_PLATFORM, plan.system)
    log.point(
        keys.CAMPAIGN,
        {
            "campaign": campaign.digest,
            "run": slot.run,
            "attempt": attempt,
            "practice": plan.practice,
            "ruleset": plan.ruleset,
        },
    )
    log.point(keys.PACKAGE_DIGEST, plan.package_digest)
    log.point(keys.SYSTEM, {"digest": plan.system_digest, **story.system})
    log.point(keys.CACHE_CLEAR, story.cache_cleared)
    log.start(keys.INIT_START, None)
    configuration = campaign.configuration
    log.point(keys.CONFIGURATION, configuration.to_json())
    log.point(keys.DATASET, dict(plan.dataset))
    log.point(keys.SEED, slot.seed)
    for key, value in _hyperparameters(configuration, plan.dataset).items():
        log.point(key, value)


def _hyperparameters(config: Configuration, dataset: Mapping[str, Any]) -> dict[str, Any]:
    steps = config.steps_per_epoch(dataset["train_samples"])
    warmup = round(config.warmup_epochs * steps)
    return {
        keys.TRAIN_SAMPLES: dataset["train_samples"],
        keys.EVAL_SAMPLES: dataset["eval_samples"],
        keys.GLOBAL_BATCH_SIZE: config.global_batch_size,
        keys.GRADIENT_ACCUMULATION_STEPS: config.gradient_accumulation_steps,
        keys.MODEL_BN_SPAN: config.bn_span * config.local_batch_size,
        keys.OPT_NAME: update_name(config),
        **OPTIMIZERS[config.optimizer].values(
            config, round(config.decay_epochs * steps) - warmup + 1
        ),
    }


def play_run(
    log: EventLogWriter,
    campaign: Campaign,
    slot: RunState,
    attempt: int,
    story: Story,
    clock: Clock,
    *,
    cut_in: int | None = None,
) -> None:
    """What rank 0 logs in one run; `campaign.start` is called where the clock may start.

    Nothing is logged after the start of epoch `cut_in`.
    """
    chance = random.Random(slot.seed if story.chance is None else story.chance + slot.run)
    clock.pass_ms(900 + chance.random() * 50)
    _begin(log, campaign, slot, attempt, story)
    clock.pass_ms(400 + chance.random() * 50)
    log.point(keys.INITIAL_WEIGHTS_DIGEST, _digest("weights", slot.seed))
    if campaign.configuration.deterministic:
        numerics = {"cpu_capability": "AVX2", "variables": {}}
        log.point(keys.NUMERICS, numerics)
    _state(log, campaign, slot, 0, [])
    campaign.start(slot, attempt)
    clock.pass_ms(1)
    log.end(keys.INIT_STOP, None)
    log.start(keys.RUN_START, None, boot="0" * 16)
    _go_to_the_end(log, campaign, slot, story, clock, chance, cut_in)


def play_restart(
    log: EventLogWriter,
    campaign: Campaign,
    slot: RunState,
    number: int,
    epoch: int,
    story: Story,
    clock: Clock,
    *,
    cut_in: int | None = None,
) -> None:
    """What rank 0 logs when it goes on after `epoch`."""
    chance = random.Random(f"{slot.seed} {number}")
    boot = ("1" if story.another_boot else "0") * 16
    log.point(keys.RUN_RESTART, {"restart": number, "epoch": epoch}, boot=boot)
    clock.pass_ms(900 + chance.random() * 50)
    _go_to_the_end(log, campaign, slot, story, clock, chance, cut_in, done=epoch)


def _go_to_the_end(
    log: EventLogWriter,
    campaign: Campaign,
    slot: RunState,
    story: Story,
    clock: Clock,
    chance: random.Random,
    cut_in: int | None,
    done: int = 0,
) -> None:
    clock.pass_ms(20 + chance.random() * 10)
    steps = _train(log, campaign, slot, story, clock, chance, cut_in, done)
    if steps is None:
        return
    log.point(
        keys.COMMUNICATION,
        {
            "algorithms": ["native"],
            "bucket_bytes": [312176],
            "buckets": 1,
            "bytes": round(campaign.configuration.gradient_density * steps * 312176)
            if campaign.configuration.workers > 1
            else 0,
            "exposed_ms_median": 2 + chance.random(),
            "exposed_ms_p95": 5 + chance.random(),
            "skew_ms_median": 1.0,
            "skew_ms_p95": 3.0,
        },
    )
    log.point(
        keys.CLOCKS,
        {
            "node_offset_ms": [0.0],
            "node_uncertainty_ms": [0.0],
            "rank_start_skew_ms": [0.0],
            "rank_wait_ms_mean": [2.0],
        },
    )
    if campaign.configuration.algorithm != "synchronous":
        told = {"changes": steps, "mean": 0.5, "median": 0.0, "p95": 1.0, "max": 2}
        told |= {"lost_workers": 0, "repeated_steps": 0}
        log.point(keys.STALENESS, told)
    if story.joules:
        joules = story.joules[slot.run - 1]
        config = campaign.configuration
        method, scope = "rapl", "package-0"
        if config.device == "cuda":
            method, scope = "nvml", f"{how_many(config.procs_per_node, 'GPU')} a node"
        value = {"joules": joules, "method": method, "scope": scope, "nodes": [joules]}
        log.point(keys.ENERGY, value)


def _train(
    log: EventLogWriter,
    campaign: Campaign,
    slot: RunState,
    story: Story,
    clock: Clock,
    chance: random.Random,
    cut_in: int | None,
    done: int,
) -> int | None:
    """Epochs after `done` to the end; all steps of the run, None when it ends before that."""
    config = campaign.configuration
    benchmark = load_ruleset().benchmark(story.benchmark)
    goal = story.epochs if isinstance(story.epochs, int) else story.epochs[slot.run - 1]
    samples = int(campaign.plan.dataset["eval_samples"])
    schedule = LearningRateSchedule.over(config, int(campaign.plan.dataset["train_samples"]))
    performed = schedule.steps_before(done + 1)
    left = None if config.max_steps is None else config.max_steps - performed
    guessing = math.log(int(campaign.plan.dataset["classes"]))
    known = references(load_ruleset().version, story.benchmark)
    curves = [run for runs in known.curves.values() for run in runs] if known else []
    learnt = dict(chance.choice(curves)) if curves else {}
    reached = False
    taken = sum(
        schedule.steps_of(epoch) * config.at(epoch).global_batch_size
        for epoch in range(1, done + 1)
    )
    saves = any(run == slot.run for run, _ in story.restarts)
    for epoch in range(done + 1, config.max_epochs + 1):
        log.start(keys.EPOCH_START, None, epoch_num=epoch)
        if epoch == cut_in or (epoch == 2 and slot.run == story.killed_in):
            return None
        if epoch == 2 and slot.run in story.aborted:
            clock.pass_ms(100)
            log.point(keys.ABORT, "worker 1: it died")
            log.end(keys.RUN_STOP, None, status=keys.ABORTED)
            return None
        batch, steps = config.at(epoch).global_batch_size, schedule.steps_of(epoch)
        now = steps if left is None else min(steps, left)
        performed += now
        left = None if left is None else left - now
        pace = PACE[story.benchmark] * (5 if slot.run in story.disturbed else 1)
        milliseconds = pace * story.epoch_ms * (0.9 + 0.2 * chance.random())
        clock.pass_ms(milliseconds)
        taken += now * batch
        log.end(keys.EPOCH_STOP, None, epoch_num=epoch, samples_count=now * batch)
        if epoch == 1:
            losses = [guessing + 0.02 * chance.random() for _ in range(min(8, now))]
            log.point(keys.STEP_LOSS, losses)
        log.point(
            keys.TRACKED_STATS,
            {
                "throughput": now * batch / (milliseconds - 1) * 1000,
                "train_loss": guessing / epoch * (0.9 + 0.2 * chance.random()),
                "optimizer_steps": performed,
                "skipped_steps": 0,
                "loss_scale": 1.0,
                "learning_rate": schedule(performed - 1),
                "exposed_ms_median": 2.0,
            },
            epoch_num=epoch,
        )
        _state(log, campaign, slot, epoch, [guessing + epoch / 1000])
        last = left == 0
        if last or benchmark.evaluates_after(epoch, config.eval_offset):
            reaches = epoch >= goal and slot.run not in story.not_converged
            reached = reaches and not last
            target = benchmark.quality_target
            low, high = (target, target + 0.01) if reached else (0.2, target - 0.01)
            if learnt and not reached:
                low = high = min(learnt[epoch], high)
            correct = int(samples * (low + (high - low) * chance.random())) + reached
            weights = _digest(f"weights after epoch {epoch}", slot.seed)
            log.point(keys.WEIGHTS_DIGEST, weights, epoch_num=epoch)
            log.start(keys.EVAL_START, None, epoch_num=epoch)
            clock.pass_ms(pace * (15 + chance.random() * 10))
            log.point(
                keys.EVAL_ACCURACY,
                correct / samples,
                epoch_num=epoch,
                samples_count=samples,
                correct_count=correct,
            )
            log.end(keys.EVAL_STOP, None, epoch_num=epoch)
            if saves and not (reached or last):
                log.point(keys.CHECKPOINT, {"milliseconds": 2.5}, epoch_num=epoch)
        if reached or last:
            break
    log.end(keys.RUN_STOP, None, status=keys.SUCCESS if reached else keys.ABORTED)
    log.point(keys.DATA_ORDER_DIGEST, _digest("order", slot.seed), samples_count=taken)
    return performed


def _state(
    log: EventLogWriter, campaign: Campaign, slot: RunState, epoch: int, losses: list[float]
) -> None:
    if campaign.configuration.deterministic:
        digests = {
            "sha256": _digest(f"state {epoch}", slot.seed),
            "elements_sha256": _digest(f"elements {epoch}", slot.seed),
        }
        value = {**digests, "step_loss": losses}
        log.point(keys.STATE, value, epoch_num=epoch)


def _digest(what: str, seed: int) -> str:
    return sha256_hex(f"{what} {seed}".encode())
