"""DAT: the dataset is the benchmark's, and every image is taken as often as it should be."""

from __future__ import annotations

from collections.abc import Iterator

from fourmin.base.values import mapping, number
from fourmin.ledger.view import CampaignView, RunView
from fourmin.log import keys
from fourmin.log.records import Record
from fourmin.log.timeline import Timeline
from fourmin.recipe.configuration import Configuration
from fourmin.results.plan import Plan
from fourmin.rules.compare import same, short
from fourmin.rules.rule import CAMPAIGN, ERROR, NOTE, RUN, Problem, rule
from fourmin.ruleset import Benchmark

_COUNTS = ("classes", "train_samples", "eval_samples")
_SPLITS = ("train", "eval")


def _not_the_benchmarks(
    campaign: CampaignView, plan: Plan, benchmark: Benchmark
) -> Iterator[Problem]:
    """What of a plan's dataset is not the benchmark's, as far as the benchmark states it."""
    # Names and order may be others where the images are pinned.
    by = [f"{s}_{'pin' if benchmark.dataset.get(f'{s}_pin') else 'digest'}" for s in _SPLITS]
    for name in (*_COUNTS, *by):
        here, expected = plan.dataset.get(name), benchmark.dataset.get(name)
        if expected is not None and not same(here, expected):
            message = f"{name} is {short(here)}, the benchmark's is {short(expected)}"
            yield Problem(message)


@rule("DAT001", "benchmark-dataset", ERROR, CAMPAIGN)
def benchmark_dataset(
    campaign: CampaignView, plan: Plan, benchmark: Benchmark
) -> Iterator[Problem]:
    """A campaign that counts uses the benchmark's dataset.

    What it checks
        Classes, numbers of images and manifest digests of both splits in campaign.json against
        the benchmark's; where it has the splits' pins, these instead of the digests. A manifest's
        digest covers the name and bytes of every file, its pin the class and bytes.
    Why it is bad
        On easier images, or on fewer, every machine is fast.
    Example
        A validation split without its hundred hardest images.
    How to put it right
        Prepare the dataset as the benchmark says and check it with
        `fourmin data check DIR --benchmark NAME`.
    """
    if not plan.practice:
        yield from _not_the_benchmarks(campaign, plan, benchmark)


@rule("DAT002", "practice-dataset", NOTE, CAMPAIGN)
def practice_dataset(campaign: CampaignView, plan: Plan, benchmark: Benchmark) -> Iterator[Problem]:
    """A practice campaign used other data than the benchmark's.

    What it checks
        The same as DAT001, in practice, where any data will do.
    Why it is bad
        It is not. Its accuracies and times say nothing about the benchmark.
    Example
        125 images of ImageNet, to see whether the pipeline works.
    How to put it right
        Nothing needs to be done.
    """
    if plan.practice:
        yield from _not_the_benchmarks(campaign, plan, benchmark)


@rule("DAT003", "same-dataset", ERROR, RUN)
def same_dataset(run: RunView, timeline: Timeline, described: Record) -> Iterator[Problem]:
    """The run used the dataset that the plan registered.

    What it checks
        The dataset in the log against campaign.json's, and train_samples and eval_samples
        against the dataset.
    Why it is bad
        Data that changes between runs makes other runs of them.
    Example
        train_samples 1,000 beside a dataset of 1,437.
    How to put it right
        Run the whole campaign on the data with which it was registered.
    """
    dataset = mapping(described.value)
    if run.plan is not None and not same(dataset, run.plan.dataset):
        yield Problem("the dataset is not the one in campaign.json", described.line)
    for key in (keys.TRAIN_SAMPLES, keys.EVAL_SAMPLES):
        record = timeline.first(key)
        has = dataset.get(key)
        if record is not None and not same(record.value, has):
            what = f"{key} is {short(record.value)}, the dataset has {short(has)}"
            yield Problem(what, record.line)


@rule("DAT004", "epoch-samples", ERROR, RUN)
def epoch_samples(
    run: RunView, timeline: Timeline, configuration: Configuration, train_samples: int
) -> Iterator[Problem]:
    """Every epoch takes all full batches of the training split.

    What it checks
        samples_count of each epoch_stop: the number of full global batches in the training
        split, times the batch. Only `max_steps`, in practice, ends an epoch earlier.
    Why it is bad
        A short epoch is a fast one.
    Example
        1,000 images an epoch instead of 1,408.
    How to put it right
        Train on the whole split in every epoch.
    """
    batch, left = configuration.global_batch_size, configuration.max_steps
    if batch <= 0:
        yield Problem(f"a global batch of {batch} images")
        return
    for record in timeline.all(keys.EPOCH_STOP):
        epoch = number(record.metadata.get(keys.EPOCH_NUM))
        own = configuration.at(1 if epoch is None else int(epoch))
        batch, steps = own.global_batch_size, own.steps_per_epoch(train_samples)
        taken = steps if left is None else min(steps, left)
        expected = taken * batch
        if left is not None:
            left -= taken
        told = record.metadata.get(keys.SAMPLES_COUNT)
        if not same(told, expected):
            yield Problem(f"an epoch of {short(told)} images, not {expected}", record.line)


@rule("DAT005", "order-samples", ERROR, RUN)
def order_samples(run: RunView, timeline: Timeline, order: Record) -> Iterator[Problem]:
    """The digest of the data order covers every image that was trained on.

    What it checks
        samples_count of data_order_digest against the sum over all epochs.
    Why it is bad
        A digest over a part of the order says nothing about the rest, and an audit could not
        recompute it.
    Example
        A digest over the first epoch alone.
    How to put it right
        Restore events.log from where the run was made.
    """
    counts = [
        number(stop.metadata.get(keys.SAMPLES_COUNT)) or 0 for stop in timeline.all(keys.EPOCH_STOP)
    ]
    covered = order.metadata.get(keys.SAMPLES_COUNT)
    if not same(covered, sum(counts)):
        what = f"the digest covers {short(covered)} images of {sum(counts)}"
        yield Problem(what, order.line)


@rule("DAT007", "data-not-pinned", NOTE, CAMPAIGN)
def data_not_pinned(campaign: CampaignView, plan: Plan, benchmark: Benchmark) -> Iterator[Problem]:
    """The ruleset does not say which images the benchmark's dataset has.

    What it checks
        Whether the benchmark states a digest or a pin of each split.
    Why it is bad
        Until maintainers have put the pin of the first merged result into the ruleset, nothing but
        counts and the digests of other campaigns say that the images are the right ones.
    Example
        ImageNet, whose publisher states digests of archives, not of images.
    How to put it right
        Nothing needs to be done by a submitter. A maintainer copies `train_pin` and `eval_pin` from
        the first campaign.json into the benchmark.
    """
    said = benchmark.dataset
    if not plan.practice and not all(
        said.get(f"{s}_pin") or said.get(f"{s}_digest") for s in _SPLITS
    ):
        yield Problem("the ruleset does not pin its data")
