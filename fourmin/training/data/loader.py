"""What both loaders share: settings, the order of batches, and files read ahead of use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourmin.base.errors import FourminError
from fourmin.base.text import command
from fourmin.datasets.columns import Split
from fourmin.datasets.images import decode_fault
from fourmin.datasets.manifest import Manifest
from fourmin.recipe.phases import Phase
from fourmin.training.data import geometry
from fourmin.training.data.cache import DecodedCache
from fourmin.training.data.order import (
    Indices,
    augmentation_randoms_of,
    epoch_permutation,
    evaluation_batches,
    rank_batch_size,
    rank_share,
    steps_per_epoch,
)
from fourmin.training.data.source import open_source

READ_AHEAD = 3
"""Batches whose files are being read before the loader asks for them."""


@dataclass(frozen=True)
class Batch:
    """Samples of one micro-batch of one rank.

    `images`: (b, 3, size, size), normalised, RGB, in channels_last memory format, on the
    device; `labels`: (b,), int64, on the device; `indices`: (b,), int64, on the CPU: the sample
    indices that the loader really delivered, for the digest of the order.
    """

    images: torch.Tensor
    labels: torch.Tensor
    indices: torch.Tensor


@dataclass(frozen=True)
class Work:
    """What one batch is to be made of."""

    split: Split
    indices: Indices
    labels: Indices
    plan: geometry.CutPlan


@dataclass(frozen=True)
class Batching:
    """What batches and images are in some epochs: fields of the configuration, by their names."""

    global_batch_size: int
    gradient_accumulation_steps: int
    image_size: int
    eval_resize: int
    eval_rectangles: bool
    crop_area: float


class Stream(ABC, Iterator[Batch]):
    """The batches of a split's works, some of them made ahead of their use."""

    @abstractmethod
    def begin(self) -> None:
        """Have the first batches made without waiting; to be called for some steps before."""

    @abstractmethod
    def close(self) -> None:
        """Throw away what is under way."""


class Loader(ABC):
    """Batches of one rank, in the order of `fourmin.training.data.order`.

    `steps` are those of the whole run, from epoch 1 on: while the last batches of an epoch are
    used, the first ones of the next are made, and never more than are made ahead within an epoch.
    None: each epoch is made by itself.

    `mean` and `std` are in grey levels (0 to 255), one for each of R, G and B. EXIF orientation
    is ignored, as in published training code; grey and CMYK images become RGB. `phases` say what
    changes after how many epochs (`fourmin.recipe.phases`). `decoded_cache` MiB
    of decoded images are kept, of both splits together. Raises FourminError for settings that do
    not go together.
    """

    def __init__(
        self,
        *,
        manifest: Manifest,
        data_dir: Path,
        seed: int,
        global_batch_size: int,
        gradient_accumulation_steps: int = 1,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str = "cpu",
        threads: int = 1,
        image_size: int,
        eval_resize: int,
        augmentation: str,
        mean: Sequence[float],
        std: Sequence[float],
        out_dtype: torch.dtype = torch.float32,
        decoder: str = "auto",
        decoded_cache: int = 0,
        steps: int | None = None,
        eval_rectangles: bool = False,
        crop_area: float = 0.08,
        phases: Sequence[Phase] = (),
    ) -> None:
        own = Batching(
            global_batch_size, gradient_accumulation_steps, image_size, eval_resize,
            eval_rectangles, crop_area,
        )  # fmt: skip
        self.batchings = [(1, own)]
        """The first epoch of each phase, and what holds from there on."""
        for after, changes in phases:
            self.batchings.append((after + 1, replace(self.batchings[-1][1], **changes)))
        for _, own in self.batchings:
            geometry.check_settings(augmentation, own.image_size, own.eval_resize)
        self.manifest = manifest
        self.source = open_source(data_dir, manifest)
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.device = torch.device(device)
        self.threads = max(1, threads)
        self.augmentation = augmentation
        self.mean = tuple(float(value) for value in mean)
        self.std = tuple(float(value) for value in std)
        self.out_dtype = out_dtype
        self.decoder = decoder
        self.cache = DecodedCache(decoded_cache << 20) if decoded_cache else None
        self.batch_size = max(map(self._images, (own for _, own in self.batchings)))
        """The largest batch of images."""
        self.columns = {name: split_arrays(manifest.split(name)) for name in manifest.splits}
        """Of each split, labels, widths and heights."""
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="fourmin-read")
        self._steps = steps
        self._training: Stream | None = None
        self._next_epoch: int | None = None
        """The epoch that `_training` comes to next; None while one is under way."""
        self._evaluation: Stream | None = None
        """Validation batches that were begun and not asked for yet."""

    def of(self, epoch: int) -> Batching:
        """What holds in an epoch."""
        return [own for first, own in self.batchings if first <= max(epoch, 1)][-1]

    def _images(self, own: Batching) -> int:
        """Images of one batch."""
        accumulation = own.gradient_accumulation_steps
        return rank_batch_size(own.global_batch_size, self.world_size, accumulation)

    def steps_of(self, epoch: int) -> int:
        """Steps of a whole epoch."""
        return steps_per_epoch(len(self.manifest.split("train")), self.of(epoch).global_batch_size)

    def train_epoch(self, epoch: int) -> Iterator[Batch]:
        """This rank's micro-batches of an epoch: those of `steps_of`, or of what is left.

        Raises FourminError, naming the file, when one cannot be read or decoded, and RuntimeError
        when the batches of another epoch are neither used up nor closed.
        """
        if self._training is not None and self._next_epoch != epoch:
            if self._next_epoch is None:
                raise RuntimeError("close the batches of this split before asking for new ones")
            self._end_training()
        if self._training is None:
            self._training = self._open("train", self._training_work(epoch))
        stream, self._next_epoch, whole = self._training, None, False
        batches = len(self._steps_of(epoch)) * self.of(epoch).gradient_accumulation_steps
        try:
            for left in reversed(range(batches)):
                batch = next(stream)
                if not left and self._goes_on(epoch):
                    whole, self._next_epoch = True, epoch + 1
                yield batch
        finally:
            if not whole:
                # The last one, or left early: what was made ahead is not what comes next.
                self._end_training()

    def batches_of(self, epoch: int, steps: Iterable[int]) -> Iterator[Batch]:
        """The micro-batches of some steps of an epoch, in their order. `steps` is asked ahead of
        their use, and may be made as it is asked. Raises FourminError as `train_epoch` does.
        """
        shares = (indices for share in self._shares(epoch, steps) for indices in share)
        stream = self._open("train", (self._training_batch(epoch, one) for one in shares))
        try:
            yield from stream
        finally:
            stream.close()

    def begin_evaluation(self, epoch: int = 1) -> None:
        """Have the first validation batches made, so that `evaluate` finds them ready."""
        if self._evaluation is None:
            self._evaluation = self._open("val", self._evaluation_work(epoch))
        self._evaluation.begin()

    def evaluate(self, epoch: int = 1) -> Iterator[Batch]:
        """This rank's validation samples after an epoch, each once; the last batch may be smaller.

        Raises FourminError, naming the file, when one cannot be read or decoded.
        """
        stream = self._evaluation or self._open("val", self._evaluation_work(epoch))
        self._evaluation = None
        try:
            yield from stream
        finally:
            stream.close()

    def close(self) -> None:
        """Throw away what was made ahead, stop the reading threads and close the files."""
        self._end_training()
        if self._evaluation is not None:
            self._evaluation.close()
            self._evaluation = None
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.source.close()

    def _end_training(self) -> None:
        if self._training is not None:
            self._training.close()
        self._training = self._next_epoch = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_from(self, data_dir: Path) -> None:
        """Read the images from a copy of the dataset, before any was read."""
        self.source.data_dir = data_dir

    def warm_up(self) -> None:  # noqa: B027 - most have nothing to make ready
        """Make ready what can be without an image of the dataset; not every loader has such."""

    @abstractmethod
    def _open(self, split: str, work: Iterator[Work]) -> Stream:
        """What carries out `work` on the pipeline of a split."""

    def _steps_of(self, epoch: int) -> range:
        """The steps of an epoch, counted from the first one of epoch 1."""
        first = sum(map(self.steps_of, range(1, epoch)))
        end = first + self.steps_of(epoch)
        return range(first, end if self._steps is None else min(end, self._steps))

    def _goes_on(self, epoch: int) -> bool:
        return self._steps is not None and len(self._steps_of(epoch + 1)) > 0

    def _training_work(self, epoch: int) -> Iterator[Work]:
        """From the first batch of `epoch` to the last one that is known to come."""
        order = self._own_order(epoch)
        while True:
            # Beside the training, not between two batches: ImageNet's takes a tenth of a second.
            following = self._goes_on(epoch)
            coming = self._pool.submit(self._own_order, epoch + 1) if following else None
            for indices in order:
                yield self._training_batch(epoch, indices)
            if coming is None:
                return
            epoch, order = epoch + 1, coming.result()

    def _own_order(self, epoch: int) -> Indices:
        """This rank's samples of an epoch; int64, (micro-batches, micro-batch)."""
        return np.concatenate([*self._shares(epoch, range(len(self._steps_of(epoch))))])

    def _shares(self, epoch: int, steps: Iterable[int]) -> Iterator[Indices]:
        """This rank's samples of some steps; int64, (micro-batches of a step, micro-batch)."""
        own = self.of(epoch)
        permutation = epoch_permutation(self.seed, epoch, len(self.manifest.split("train")))
        for step in steps:
            yield rank_share(
                permutation, step, own.global_batch_size, self.rank, self.world_size,
                own.gradient_accumulation_steps,
            )  # fmt: skip

    def _training_batch(self, epoch: int, indices: Indices) -> Work:
        labels, widths, heights = (column[indices] for column in self.columns["train"])
        randoms = augmentation_randoms_of(
            self.seed, epoch, indices, geometry.RANDOMS[self.augmentation]
        )
        own = self.of(epoch)
        plan = geometry.training_plan(
            self.augmentation, widths, heights, randoms, own.image_size, own.eval_resize,
            own.crop_area,
        )  # fmt: skip
        return Work(self.manifest.split("train"), indices, labels, plan)

    def _evaluation_work(self, epoch: int) -> Iterator[Work]:
        own, (_, widths, heights) = self.of(epoch), self.columns["val"]
        order = geometry.evaluation_order(widths, heights, own.eval_rectangles)
        for batch in evaluation_batches(len(order), self.rank, self.world_size, self._images(own)):
            yield self._evaluation_batch(own, order[batch])

    def _evaluation_batch(self, own: Batching, indices: Indices) -> Work:
        labels, widths, heights = (column[indices] for column in self.columns["val"])
        plan = geometry.evaluation_plan(
            widths, heights, own.image_size, own.eval_resize, own.eval_rectangles
        )
        return Work(self.manifest.split("val"), indices, labels, plan)

    def typical_batch(self, split: str, epoch: int = 1) -> Work:
        """One of an epoch, of nothing but the sample whose listed area is its split's median."""
        _, widths, heights = self.columns[split]
        middle = np.argsort(widths * heights)[len(widths) // 2]
        indices = np.full(self._images(self.of(epoch)), middle, dtype=np.int64)
        if split == "val":
            return self._evaluation_batch(self.of(epoch), indices)
        return self._training_batch(epoch, indices)

    def read_file(self, split: Split, index: int) -> bytes:
        """The bytes of a sample. Raises FourminError when they are not as many as listed."""
        return self.source.read(split, index)

    def undecodable(self, split: Split, index: int, reason: object) -> FourminError:
        return FourminError(
            f"cannot decode the image {self.source.name_of(split, index)}",
            f"it {decode_fault(reason)}",
            f"fetch it again, then: {command('data', 'check', self.source.data_dir)}",
        )

    def ahead(self, work: Iterator[Work], task: Callable[[Work, range], list[Any]]) -> Ahead:
        """Each work with what threads make of its samples by `task(work, positions)`, in order."""
        return Ahead(self._pool, self.threads, work, task)


@dataclass(eq=False)
class Ahead(Iterator[tuple[Work, list[Any]]]):
    """Works with what threads make of their samples; READ_AHEAD works are under way at a time."""

    _pool: ThreadPoolExecutor
    _threads: int
    _work: Iterator[Work]
    _task: Callable[[Work, range], list[Any]]
    _waiting: deque[tuple[Work, list[Future[list[Any]]]]] = field(default_factory=deque)
    begun = False

    def begin(self) -> None:
        """Have the first works begun, without waiting for any."""
        self.begun = True
        self._fill(READ_AHEAD)

    def __next__(self) -> tuple[Work, list[Any]]:
        self._fill(READ_AHEAD + 1)
        if not self._waiting:
            raise StopIteration
        work, futures = self._waiting.popleft()
        return work, [item for future in futures for item in future.result()]

    def close(self) -> None:
        """Take back what no thread has begun."""
        while self._waiting:
            for future in self._waiting.popleft()[1]:
                future.cancel()

    def _fill(self, most: int) -> None:
        while len(self._waiting) < most:
            work = next(self._work, None)
            if work is None:
                return
            size = -(-len(work.indices) // self._threads)
            spans = (
                range(at, min(at + size, len(work.indices)))
                for at in range(0, len(work.indices), size)
            )
            futures = [self._pool.submit(self._task, work, span) for span in spans]
            self._waiting.append((work, futures))


def split_arrays(split: Split) -> tuple[Indices, Indices, Indices]:
    """Labels, widths and heights as numpy views of the manifest's arrays; int64, (n,)."""
    labels, widths, heights = (
        np.frombuffer(column, dtype=np.int64) if len(column) else np.empty(0, np.int64)
        for column in (split.labels, split.widths, split.heights)
    )
    return labels, widths, heights
