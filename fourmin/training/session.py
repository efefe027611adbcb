"""One run from the first import to the last evaluation, as one worker sees it.

The order is the rule: everything that does not need an image happens between init_start and
init_stop, and the manifest is read; a barrier; the command records the start; run_start; and only
then are images touched. Rank 0 alone writes the event log. A run that was cut off goes on in the
same log, from its last checkpoint, and all that takes is on the clock.
"""

from __future__ import annotations

import time

from fourmin.base.errors import FourminError
from fourmin.datasets.manifest import Manifest
from fourmin.datasets.manifest_image import map_manifest
from fourmin.launch.control import ControlClient
from fourmin.launch.job import Job
from fourmin.log import keys
from fourmin.log.writer import EventLogWriter, SilentLog
from fourmin.recipe.algorithms import repeats_order
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.ruleset import load_ruleset
from fourmin.system.boot import boot_digest
from fourmin.training.algorithms.child import Child
from fourmin.training.algorithms.host import Host, host_of
from fourmin.training.assemble import Assembly, assemble
from fourmin.training.backends import numerics, set_backends
from fourmin.training.comm import process_group
from fourmin.training.comm.agreement import (
    assert_known_sum,
    assert_same_on_all_ranks,
    tensor_digest,
)
from fourmin.training.comm.compression import scatter
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.data import open_data
from fourmin.training.data.loader import Loader
from fourmin.training.data.staging import refuse_shared_stage, remove_staged, stage_dataset
from fourmin.training.epochs import Epochs
from fourmin.training.heartbeat import Heartbeat
from fourmin.training.models.init import weights_digest
from fourmin.training.ranks import barrier, numbers_of_ranks, set_timeout
from fourmin.training.run_log import (
    log_clocks,
    log_communication,
    log_hyperparameters,
    log_submission,
)
from fourmin.training.state import FEEDBACK, ORDER, SENT, pack, shared, unpack
from fourmin.training.trace import Trace


def take_part(job: Job, control: ControlClient, child: Child | None = None) -> None:
    """Train to the target or to the end of the schedule, as the worker that this process is, or as
    the host of one (`child`).

    Raises FourminError for what cannot go on; every other exception is a fault.
    """
    config = job.configuration
    set_backends(config.threads, config.deterministic)
    place = process_group.init_process_group(config.device, job.imports_seconds)
    try:
        set_timeout(config.collective_timeout_seconds)
        assert_known_sum()
        if job.stage is not None:
            refuse_shared_stage(job, job.stage, place)
        trace = Trace(job, control.note) if job.profile and place.rank == 0 else None
        run = _prepare(job, place, control)
        loader = _loader(run)
        host = host_of(run, child) if child else None
        started_ns = _go_on(run) if job.restart else _start(run, control)
        if job.stage is not None:
            loader.read_from(stage_dataset(job, run.manifest, job.stage, place, run.log))
        epochs = Epochs(run, loader, trace, host)
        reached = epochs.train()
        _close(run, epochs, reached, started_ns, host)
        epochs.close()
        if host:
            host.close()
    finally:
        process_group.destroy()
        if job.stage is not None:
            remove_staged(job, job.stage, place)


# Before the clock, unless it is a restart.


def _prepare(job: Job, place: WorkerPlace, control: ControlClient) -> Assembly:
    """Open the log, say in it what runs, and assemble it."""
    config = job.configuration
    benchmark = load_ruleset(job.ruleset).benchmark(config.benchmark)
    schedule = LearningRateSchedule.over(config, int(job.dataset["train_samples"]))
    again = job.restart > 0
    log = EventLogWriter(job.events_log, resume=again) if place.rank == 0 else SilentLog()
    if again:
        what = {"restart": job.restart, "epoch": job.restart_epoch}
        log.point(keys.RUN_RESTART, what, boot=boot_digest())
        log.sync()
    else:
        log_submission(log, job)
        log.start(keys.INIT_START, None)
        log_hyperparameters(log, job, schedule)
    return assemble(
        job,
        benchmark,
        _read_manifest(job, place),
        schedule,
        place,
        log,
        Heartbeat(control if place.rank == 0 else None, config.collective_timeout_seconds),
    )


def _read_manifest(job: Job, place: WorkerPlace) -> Manifest:
    """What the node has left for its workers, each of which checks a part of its digests."""
    manifest = map_manifest(job.manifest_image, place.local_rank, place.ranks_per_node)
    if not manifest.fits(job.dataset):
        raise FourminError(
            "the manifest does not list the images of this campaign",
            "it has other digests than campaign.json",
            f"put back the images that {job.manifest} listed, or register anew",
        )
    return manifest


def _loader(run: Assembly) -> Loader:
    """What will read the images, imported, built and warmed up without any of them."""
    job, place = run.job, run.place
    config = job.configuration
    steps = run.schedule.steps_before(config.max_epochs + 1)
    loader = open_data(
        config,
        manifest=run.manifest,
        data_dir=job.data_dir,
        seed=job.seed,
        device=place.device,
        rank=place.rank,
        world_size=place.world_size,
        steps=steps if config.max_steps is None else min(steps, config.max_steps),
    )
    loader.warm_up()
    return loader


def _start(run: Assembly, control: ControlClient) -> int:
    """Start the clock, with the command's consent; when this rank left the last barrier (ns)."""
    digest = weights_digest(run.model)
    assert_same_on_all_ranks("the initial weights", digest)
    run.log.point(keys.INITIAL_WEIGHTS_DIGEST, digest)
    if run.states is not None:
        run.log.point(keys.NUMERICS, numerics())
        run.states.take(0, (), run.model, run.optimizer, run.step)
        run.states.settle()
    barrier(run.place)
    if run.place.rank == 0:
        control.ask_to_start()
    barrier(run.place)
    started_ns = time.time_ns()
    run.log.end(keys.INIT_STOP, None)
    run.energy.start()
    run.log.start(keys.RUN_START, None, boot=boot_digest())
    return started_ns


# On the clock.


def _go_on(run: Assembly) -> int:
    """Become what the checkpoint holds that a restart names; returns as `_start` does."""
    if run.job.restart_epoch:
        _load_checkpoint(run, run.job.restart_epoch)
    barrier(run.place)
    return time.time_ns()


def _load_checkpoint(run: Assembly, epoch: int) -> None:
    """Become, on all ranks, what the checkpoint after `epoch` holds."""
    job = run.job
    saved = run.checkpoints.load(epoch)
    if saved is not None:
        parts = [bytes(part) for part in saved[ORDER].tolist()]
        samples = int(job.dataset["train_samples"])
        batch_of = lambda epoch: job.configuration.at(epoch).global_batch_size  # noqa: E731
        repeated = repeats_order(job.configuration)
        run.order.go_on(job.seed, samples, batch_of, parts, repeated=repeated)
    like = pack(run.model, run.optimizer, run.step, run.order)
    unpack(shared(saved, like, run.place), run.model, run.optimizer, run.step)
    if run.reducer.compression:
        scatter(run.reducer.compression, saved[FEEDBACK] if saved else None, run.place)
        run.reducer.compression.bytes = int(saved[SENT]) if saved else 0
    if run.states is not None:
        run.states.take_again(epoch, run.model, run.optimizer, run.step)
    digest = tensor_digest(run.model.parameters())
    assert_same_on_all_ranks("the weights of the checkpoint", digest)


# The clock stops first.


def _close(
    run: Assembly, epochs: Epochs, reached: bool, started_ns: int, host: Host | None
) -> None:
    """Log the end, what only then is known, and wait until all of it is on the disk."""
    log = run.log
    log.end(keys.RUN_STOP, None, status=keys.SUCCESS if reached else keys.ABORTED)
    run.heartbeat.stop()
    joules = run.energy.stop()
    exposed_ms = numbers_of_ranks(epochs.exposed_seconds, run.place) * 1000
    started = numbers_of_ranks([started_ns], run.place)[:, 0]
    log_clocks(log, run.job, started, exposed_ms)
    order = run.order
    log.point(keys.DATA_ORDER_DIGEST, order.hexdigest(), samples_count=order.count)
    counters = (host or run.pipeline or run.reducer).counters
    log_communication(log, counters, exposed_ms, epochs.attempted)
    if host:
        host.log()
    run.energy.log(log, joules)
    log.sync()
    run.checkpoints.close()
    if run.states is not None:
        run.states.close()
