"""What both loaders share: settings, the order of batches, and files read ahead of use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourmin.base.errors import FourminError
from fourmin.datasets.columns import Split
from fourmin.datasets.manifest import Manifest
from fourmin.training.data import geometry
from fourmin.training.data.cache import DecodedCache
from fourmin.training.data.order import (
    Indices,
    augmentation_randoms_of,
    epoch_permutation,
    evaluation_share,
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


class Loader(ABC):
    """Batches of one rank, in the order of `fourmin.training.data.order`.

    `mean` and `std` are in grey levels (0 to 255), one for each of R, G and B. EXIF orientation
    is ignored, as in published training code; grey and CMYK images become RGB. `decoded_cache` MiB
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
    ) -> None:
        geometry.check_settings(augmentation, image_size, eval_resize)
        self.manifest = manifest
        self.source = open_source(data_dir, manifest)
        self.seed = seed
        self.global_batch_size = global_batch_size
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.rank = rank
        self.world_size = world_size
        self.device = torch.device(device)
        self.threads = max(1, threads)
        self.image_size = image_size
        self.eval_resize = eval_resize
        self.augmentation = augmentation
        self.mean = tuple(float(value) for value in mean)
        self.std = tuple(float(value) for value in std)
        self.out_dtype = out_dtype
        self.decoder = decoder
        self.cache = DecodedCache(decoded_cache << 20) if decoded_cache else None
        self.batch_size = rank_batch_size(
            global_batch_size, world_size, gradient_accumulation_steps
        )
        self.steps_per_epoch = steps_per_epoch(len(manifest.split("train")), global_batch_size)
        self._arrays = {name: _arrays(manifest.split(name)) for name in manifest.splits}
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="fourmin-read")

    def train_epoch(self, epoch: int) -> Iterator[Batch]:
        """This rank's micro-batches of an epoch: steps_per_epoch * accumulation steps of them.

        Raises FourminError, naming the file, when one cannot be read or decoded.
        """
        return self._batches("train", self._training_work(epoch))

    def evaluate(self) -> Iterator[Batch]:
        """This rank's validation samples, each once; the last batch may be smaller.

        Raises FourminError, naming the file, when one cannot be read or decoded.
        """
        return self._batches("val", self._evaluation_work())

    def close(self) -> None:
        """Stop the reading threads and close the files."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.source.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _batches(self, split: str, work: Iterator[Work]) -> Iterator[Batch]:
        """Carry out `work` on the pipeline of a split."""

    def _training_work(self, epoch: int) -> Iterator[Work]:
        split = self.manifest.split("train")
        permutation = epoch_permutation(self.seed, epoch, len(split))
        for step in range(self.steps_per_epoch):
            for indices in rank_share(
                permutation,
                step,
                self.global_batch_size,
                self.rank,
                self.world_size,
                self.gradient_accumulation_steps,
            ):
                labels, widths, heights = (column[indices] for column in self._arrays["train"])
                randoms = augmentation_randoms_of(
                    self.seed, epoch, indices, geometry.RANDOMS[self.augmentation]
                )
                plan = geometry.training_plan(
                    self.augmentation, widths, heights, randoms, self.image_size, self.eval_resize
                )
                yield Work(split, indices, labels, plan)

    def _evaluation_work(self) -> Iterator[Work]:
        split = self.manifest.split("val")
        share = evaluation_share(len(split), self.rank, self.world_size)
        for start in range(0, len(share), self.batch_size):
            indices = share[start : start + self.batch_size]
            labels, widths, heights = (column[indices] for column in self._arrays["val"])
            plan = geometry.evaluation_plan(widths, heights, self.image_size, self.eval_resize)
            yield Work(split, indices, labels, plan)

    def read_file(self, split: Split, index: int) -> bytes:
        """The bytes of a sample. Raises FourminError when they are not as many as listed."""
        return self.source.read(split, index)

    def undecodable(self, split: Split, index: int, reason: object) -> FourminError:
        return FourminError(
            f"cannot decode the image {self.source.name_of(split, index)}",
            str(reason),
            f"fetch it again, then: fourmin data check {self.source.data_dir}",
        )

    def ahead(
        self, work: Iterable[Work], task: Callable[[Work, int], Any]
    ) -> Iterator[tuple[Work, list[Any]]]:
        """Each work with `task(work, position)` of all its samples, done by threads, in order.

        READ_AHEAD batches are under way at a time.
        """
        waiting: deque[tuple[Work, list[Future[list[Any]]]]] = deque()

        def take() -> tuple[Work, list[Any]]:
            done, futures = waiting.popleft()
            return done, [item for future in futures for item in future.result()]

        try:
            for one in work:
                size = -(-len(one.indices) // self.threads)
                spans = (
                    range(at, min(at + size, len(one.indices)))
                    for at in range(0, len(one.indices), size)
                )
                waiting.append((one, [self._pool.submit(_run, task, one, span) for span in spans]))
                if len(waiting) > READ_AHEAD:
                    yield take()
            while waiting:
                yield take()
        finally:
            for _, futures in waiting:
                for future in futures:
                    future.cancel()


def _run(task: Callable[[Work, int], Any], work: Work, span: range) -> list[Any]:
    return [task(work, position) for position in span]


def _arrays(split: Split) -> tuple[Indices, Indices, Indices]:
    """Labels, widths and heights as numpy views of the manifest's arrays; int64, (n,)."""
    labels, widths, heights = (
        np.frombuffer(column, dtype=np.int64) if len(column) else np.empty(0, np.int64)
        for column in (split.labels, split.widths, split.heights)
    )
    return labels, widths, heights
