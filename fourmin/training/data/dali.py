"""The loader of NVIDIA DALI: it decodes, scales and normalises what it is told to.

Paths in our order are fed through `external_source`, with label, sample index and geometry; DALI's
threads read the files, since Python's would wait for the interpreter that launches the training
step (samples of shards, which DALI cannot read by offset, are read by Python's all the same). Index
and size of each sample come out of the pipeline beside the image. With `mixed` the JPEGs are
decoded on the GPU, where a hardware decoder exists partly by it.

With a cache of decoded images the pipeline is fed whole images instead, and only cuts; see
`dali_decoder`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from nvidia.dali import Pipeline, fn, types
from torch.utils.dlpack import from_dlpack

from fourmin.base.errors import FourminError
from fourmin.training.data.dali_decoder import (
    WholeImages,
    check_sizes,
    decoder_options,
    generated,
    named,
    reads_paths,
    stored,
    with_bytes,
    with_paths,
)
from fourmin.training.data.loader import Ahead, Batch, Loader, Stream, Work

PREFETCH = 3
"""Batches that DALI holds ahead of the one in use."""


class DaliLoader(Loader):
    """Batches decoded by DALI, on the CPU (`device="cpu"`) or on a CUDA device.

    Both splits' pipelines are built here, once. The pixels do not depend on the number of threads.
    Arguments as `Loader`. Raises FourminError for settings that do not go together.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._dtype = types.FLOAT16 if self.out_dtype == torch.float16 else types.FLOAT
        self._pipes = {split: _Pipe(self, split) for split in ("train", "val")}

    def _open(self, split: str, work: Iterator[Work]) -> Stream:
        return self._pipes[split].over(work)

    def warm_up(self) -> None:
        """Cut generated images in both pipelines: decoders, kernels and buffers are there then."""
        for split, pipe in self._pipes.items():
            if len(self.manifest.split(split)):
                for first, _ in self.batchings:
                    pipe.warm_up(self.typical_batch(split, first))

    def close(self) -> None:
        super().close()
        self._pipes.clear()


def _steps(loader: DaliLoader, split: str) -> list[str]:
    """The names of the plan's steps that change anything in a split."""
    augmentation = loader.augmentation if split == "train" else "none"
    if augmentation == "random-resized-crop":
        return ["start", "shape", "size", "mirror"]
    _, widths, heights = loader.columns[split]
    shorter = np.minimum(widths, heights)
    scales = any((shorter != own.eval_resize).any() for _, own in loader.batchings)
    mirrors = augmentation == "pad-crop"
    return [*(["size"] if scales else []), "crop", "window", *(["mirror"] if mirrors else [])]


def _device_index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


class _Pipe(Stream):
    """One built DALI pipeline, and what is in flight in it of the works it goes through."""

    def __init__(self, loader: DaliLoader, split: str) -> None:
        self._loader = loader
        _, *sides = loader.columns[split]
        self._largest = [int(side.max(initial=1)) for side in sides]
        self._whole = None if loader.cache is None else WholeImages(loader, loader.cache)
        self._mixed = loader.device.type == "cuda" and loader.decoder != "cpu"
        self._geometry = _steps(loader, split)
        """The steps of the plan that this pipeline takes; the others change nothing."""
        self._reads: Ahead | None = None
        """What reads the samples, where DALI does not."""
        self._feed = self._inputs(iter(()))
        self._in_flight: deque[tuple[Work, list[np.ndarray]]] = deque()
        self._used: deque[tuple[Work, list[np.ndarray]]] = deque(maxlen=PREFETCH)
        """What DALI, which copies no sample, may still read although its batch is there."""
        self._in_use = False
        self._begun = False
        """Whether DALI has been given its first batches, and none was asked for."""
        self._pipeline = self._build()

    def _build(self) -> Pipeline:
        loader = self._loader
        cuda = loader.device.type == "cuda"
        pipeline = Pipeline(
            batch_size=loader.batch_size,
            num_threads=loader.threads,
            device_id=_device_index(loader.device) if cuda else None,
            prefetch_queue_depth=PREFETCH,
            exec_dynamic=True,
        )
        with pipeline:
            fed, label, index, *sources = fn.external_source(
                source=self._next,
                num_outputs=3 + len(self._geometry),
                batch=True,
                no_copy=True,
                dtype=[types.UINT8] + [types.INT64] * 2 + [types.INT32] * len(self._geometry),
                ndim=[3 if self._whole else 1, 0, 0]
                + [0 if name == "mirror" else 1 for name in self._geometry],
                layout=["HWC", *[""] * (2 + len(self._geometry))] if self._whole else None,
            )
            given = dict(zip(self._geometry, sources, strict=True))
            images, *sizes = self._cut(fed, given) if self._whole else self._read(fed, given)
            if cuda:
                images = images.gpu()
            if "size" in given:
                images = fn.resize(
                    images,
                    size=fn.cast(given["size"], dtype=types.FLOAT),
                    interp_type=types.INTERP_LINEAR,
                    antialias=True,
                )
            if "crop" in given:
                images = fn.slice(
                    images,
                    start=given["crop"],
                    shape=given["window"],
                    axes=[0, 1],
                    out_of_bounds_policy="pad",
                    fill_values=0,
                )
            images = fn.crop_mirror_normalize(
                images,
                mirror=given.get("mirror", 0),
                mean=list(loader.mean),
                std=list(loader.std),
                dtype=loader._dtype,
                output_layout="HWC",
            )
            pipeline.set_outputs(images, label.gpu() if cuda else label, index, *sizes)
        pipeline.build()
        return pipeline

    def _read(self, fed: Any, given: dict[str, Any]) -> tuple[Any, ...]:
        """The cut images of encoded ones, or of their paths, and the bytes that each has."""
        encoded = fn.io.file.read(fed) if reads_paths(self._loader) else fed
        options = decoder_options(self._mixed)
        if self._mixed:
            # Room for the largest image from the start: growing a buffer stalls the GPU.
            options["preallocate_width_hint"], options["preallocate_height_hint"] = self._largest
        size = encoded.shape(dtype=types.INT64)
        if "start" not in given:
            return fn.decoders.image(encoded, **options), size
        images = fn.decoders.image_slice(
            encoded, start=given["start"], shape=given["shape"], axes=[0, 1], **options
        )
        return images, size

    def _cut(self, whole: Any, given: dict[str, Any]) -> tuple[Any, ...]:
        """The cut images of whole ones, on the CPU, so that a GPU gets no more than it needs."""
        if "start" not in given:
            return (whole,)
        return (fn.slice(whole, start=given["start"], shape=given["shape"], axes=[0, 1]),)

    def _next(self) -> tuple[Any, ...]:
        """Called by DALI for each batch, ahead of its use; StopIteration ends an epoch."""
        return next(self._feed)

    def over(self, work: Iterator[Work]) -> _Pipe:
        """This, to go through `work` from now on.

        Raises RuntimeError when the batches before are not closed.
        """
        if self._in_use:
            raise RuntimeError("close the batches of this split before asking for new ones")
        self._in_use = True
        samples = self._whole.held_or_stored if self._whole else stored
        given: Iterator[tuple[Work, list[np.ndarray]]]
        if reads_paths(self._loader):
            given = with_paths(self._loader, work, samples)
        else:
            given = self._reads = with_bytes(self._loader, work, samples)
        self._feed = self._inputs(self._whole.batches(given) if self._whole else given)
        self._begun = False
        return self

    def _inputs(
        self, given: Iterator[tuple[Work, list[np.ndarray]]]
    ) -> Generator[tuple[Any, ...], None, None]:
        for one, samples in given:
            self._in_flight.append((one, samples))
            geometry = (getattr(one.plan, name) for name in self._geometry)
            yield (samples, one.labels, one.indices, *geometry)

    def warm_up(self, work: Work) -> None:
        """Go over as many of `work` as DALI holds, with a generated image for its samples.

        Raises RuntimeError where DALI fails.
        """
        at = work.indices[0]
        shape = (work.split.heights[at], work.split.widths[at], 3)
        pixels = np.zeros(shape, dtype=np.uint8)
        pixels += (np.arange(shape[1]) % 256).astype(np.uint8)[:, None]
        with generated(self._loader, pixels) as encoded:
            samples = [pixels if self._whole else encoded] * len(work.indices)
            self._feed = self._inputs(iter([(work, samples)] * PREFETCH))
            self._run_out()
        self._in_flight.clear()

    def begin(self) -> None:
        if self._begun:
            return
        if self._reads is not None and not self._reads.begun:
            # DALI would wait for them: it gets them when it is called for the next step.
            self._reads.begin()
        elif self._whole is None:
            self._schedule()

    def __next__(self) -> Batch:
        if not self._begun:
            self._schedule()
        self._begun = False
        outputs = self._named(self._outputs)
        self._used.append(self._in_flight.popleft())
        return self._batch(self._used[-1][0], outputs)

    def close(self) -> None:
        """Throw away the batches under way; it can go over other works afterwards."""
        self._feed.close()
        if self._reads is not None:
            self._reads.close()
        self._drain()
        self._in_flight.clear()
        self._in_use = False

    def _schedule(self) -> None:
        """Have DALI begin one batch more, at first as many as it holds ahead."""
        self._named(self._pipeline.schedule_run)
        self._begun = True

    def _outputs(self) -> Any:
        """The next batch's; StopIteration where there is none."""
        device = self._loader.device
        if device.type == "cuda":
            return self._pipeline.outputs(torch.cuda.current_stream(device))
        return self._pipeline.outputs()

    def _named(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RuntimeError as error:
            # With a cache no file is in question here.
            reading = () if self._whole else self._in_flight
            under_way = ((one.split, one.indices) for one, _ in reading)
            raise named(self._loader, under_way, error) from error

    def _batch(self, work: Work, outputs: Any) -> Batch:
        images, labels, indices, *sizes = (from_dlpack(one.as_tensor()) for one in outputs)
        for found in sizes:
            check_sizes(self._loader, work.split, work.indices, found.numpy())
        images = images.permute(0, 3, 1, 2)
        if images.dtype != self._loader.out_dtype:
            images = images.to(self._loader.out_dtype)
        return Batch(images, labels, indices)

    def _drain(self) -> None:
        # Where the pipeline has failed, the error that says so is on its way already.
        with suppress(RuntimeError, FourminError):
            self._run_out()

    def _run_out(self) -> None:
        """Throw away all batches that come, until there are none."""
        try:
            while True:
                self._pipeline.schedule_run()
                self._pipeline.outputs()
        except StopIteration:
            self._pipeline.reset()
