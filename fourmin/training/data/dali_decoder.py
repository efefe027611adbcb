"""Decoding by NVIDIA DALI: how its decoders are called, and whole images through the cache."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nvidia.dali import Pipeline, fn, types

from fourmin.base.errors import FourminError
from fourmin.datasets.columns import Split
from fourmin.training.data.cache import DecodedCache, Pixels
from fourmin.training.data.loader import Ahead, Loader, Work
from fourmin.training.data.order import Indices
from fourmin.training.data.source import TreeSource

HARDWARE_DECODER_LOAD = 0.75
"""Share of a batch that the hardware JPEG decoder takes, where there is one."""
DECODE_AHEAD = 2
"""Batches whose missing images are being decoded before the cutting pipeline asks for them."""
INPUT = "encoded"


def decoder_options(mixed: bool) -> dict[str, Any]:
    options: dict[str, Any] = {
        "device": "mixed" if mixed else "cpu",
        "output_type": types.RGB,
        "adjust_orientation": False,
        # nvJPEG before 13.2 refuses to smooth chroma where it cuts out a region, and the images
        # would be decoded on the CPU after all.
        "jpeg_fancy_upsampling": not mixed,
    }
    if mixed:
        # Its pixels are not those of the GPU's other decoder, and who is idle takes more.
        one = torch.are_deterministic_algorithms_enabled()
        options["hw_decoder_load"] = 0.0 if one else HARDWARE_DECODER_LOAD
    return options


def reads_paths(loader: Loader) -> bool:
    """Whether DALI reads the files itself, by path; else it is given their bytes."""
    return isinstance(loader.source, TreeSource)


def stored(loader: Loader, split: Split, index: int) -> np.ndarray:
    """A sample as DALI takes it, uint8: the path of its file, or its bytes.

    Raises FourminError as `Loader.read_file`.
    """
    if reads_paths(loader):
        return np.frombuffer(os.fsencode(loader.source.name_of(split, index)), dtype=np.uint8)
    return np.frombuffer(loader.read_file(split, index), dtype=np.uint8)


@contextmanager
def generated(loader: Loader, pixels: np.ndarray) -> Iterator[np.ndarray]:
    """A JPEG of `pixels`, (height, width, 3), as DALI takes a sample of the loader."""
    from PIL import Image

    # On no disk: a worker that is killed leaves nothing.
    with os.fdopen(os.memfd_create("generated"), "w+b") as file:
        Image.fromarray(pixels).save(file, "JPEG")
        file.flush()
        path = Path(f"/proc/self/fd/{file.fileno()}")
        sample = os.fsencode(path) if reads_paths(loader) else path.read_bytes()
        yield np.frombuffer(sample, dtype=np.uint8)


Sample = Callable[[Loader, Split, int], np.ndarray]


def with_paths(
    loader: Loader, work: Iterator[Work], sample: Sample
) -> Iterator[tuple[Work, list[np.ndarray]]]:
    """Each work with `sample` of its samples, none of which is read here."""
    for one in work:
        yield one, [sample(loader, one.split, index) for index in one.indices.tolist()]


def with_bytes(loader: Loader, work: Iterator[Work], sample: Sample) -> Ahead:
    """The same where they are read here, by threads, ahead."""
    return loader.ahead(work, lambda one, at: sample(loader, one.split, int(one.indices[at])))


def check_sizes(loader: Loader, split: Split, indices: Indices, sizes: np.ndarray) -> None:
    """Raise FourminError unless the samples have as many bytes as listed."""
    sizes = sizes.flatten()
    listed = np.frombuffer(split.sizes, dtype=np.int64)[indices]
    for position in np.flatnonzero(sizes != listed).tolist():
        loader.source.check_size(split, int(indices[position]), int(sizes[position]))


def named(
    loader: Loader, under_way: Iterable[tuple[Split, Indices]], error: RuntimeError
) -> FourminError:
    """DALI does not say which file failed, so each one under way is tried by itself."""
    from PIL import Image

    for split, indices in under_way:
        for index in indices.tolist():
            try:
                with Image.open(io.BytesIO(loader.read_file(split, index))) as image:
                    image.load()
            except FourminError as found:
                return found
            except Exception as reason:
                return loader.undecodable(split, index, reason)
    return FourminError(
        "DALI failed on a batch, each file of which Pillow can decode",
        str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
        "try --loader torchvision, and report the images of this batch",
    )


class WholeImages:
    """Whole images of one split's batches: what the cache does not hold is decoded, on the CPU."""

    def __init__(self, loader: Loader, cache: DecodedCache) -> None:
        self._loader = loader
        self._cache = cache
        self._pipeline = Pipeline(
            batch_size=loader.batch_size,
            num_threads=loader.threads,
            device_id=None,
            # Batches are handed over one by one, some of them with nothing to decode, so that
            # DALI is not to ask for any by itself.
            prefetch_queue_depth=1,
            exec_dynamic=True,
        )
        with self._pipeline:
            encoded = fn.external_source(name=INPUT, batch=True, dtype=types.UINT8, ndim=1)
            if reads_paths(loader):
                encoded = fn.io.file.read(encoded)
            images = fn.decoders.image(encoded, **decoder_options(mixed=False))
            self._pipeline.set_outputs(images, encoded.shape(dtype=types.INT64))
        self._pipeline.build()

    def batches(
        self, given: Iterator[tuple[Work, list[np.ndarray]]]
    ) -> Iterator[tuple[Work, list[Pixels]]]:
        """Each work with the pixels of its samples, in order; DECODE_AHEAD of them under way.

        `given` has of each what `held_or_stored` gives.

        Raises FourminError, naming the file, when one cannot be read or decoded, or is not as
        wide and high as listed.
        """
        waiting: deque[_Decoding] = deque()
        try:
            for one, samples in given:
                waiting.append(_Decoding(one, samples))
                self._begin(waiting[-1])
                if len(waiting) > DECODE_AHEAD:
                    yield self._end(waiting)
            while waiting:
                yield self._end(waiting)
        except RuntimeError as error:
            # DALI may tell of a bad file when a later batch is begun.
            under_way = ((batch.work.split, batch.indices) for batch in waiting)
            raise named(self._loader, under_way, error) from error
        finally:
            # Left early: what is under way is thrown away.
            self._drain(waiting)

    def held_or_stored(self, loader: Loader, split: Split, index: int) -> np.ndarray:
        """The pixels of a sample, where they are held, or what has to be decoded."""
        pixels = self._cache.get(split.name, index)
        return stored(loader, split, index) if pixels is None else pixels

    def _begin(self, batch: _Decoding) -> None:
        if batch.missing:
            self._pipeline.feed_input(INPUT, [batch.samples[at] for at in batch.missing])
            self._pipeline.schedule_run()

    def _end(self, waiting: deque[_Decoding]) -> tuple[Work, list[Pixels]]:
        batch = waiting[0]
        images, sizes = self._pipeline.outputs() if batch.missing else ([], None)
        waiting.popleft()
        split, source = batch.work.split, self._loader.source
        if sizes is not None:
            check_sizes(self._loader, split, batch.indices, np.array(sizes.as_tensor()))
        for at, index, image in zip(batch.missing, batch.indices.tolist(), images, strict=True):
            # A copy: DALI's buffer is used again.
            pixels = np.array(image)
            source.check_shape(split, index, *pixels.shape[:2])
            self._cache.put(split.name, index, pixels)
            batch.samples[at] = pixels
        return batch.work, batch.samples

    def _drain(self, waiting: deque[_Decoding]) -> None:
        # It has failed, or gave all before it did; the error that says so is on its way.
        with suppress(RuntimeError, StopIteration):
            for batch in waiting:
                if batch.missing:
                    self._pipeline.outputs()


class _Decoding:
    """A batch under way: pixels that are held, and encoded images (or paths) where missing."""

    def __init__(self, work: Work, samples: list[np.ndarray]) -> None:
        self.work = work
        self.samples = samples
        self.missing = [at for at, sample in enumerate(samples) if sample.ndim == 1]
        """Positions of what has to be decoded."""
        self.indices = work.indices[self.missing]
        """And its sample indices."""
