"""Decoders alone, for `fourmin bench data`: encoded images in memory to whole images."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from fourmin.recipe.configuration import Configuration

Turn = Callable[[], int]
"""Does a batch's worth of work, perhaps queued on the device; returns its images."""


@contextmanager
def decoding(encoded: list[bytes], config: Configuration) -> Iterator[Turn]:
    """Encoded images in memory to whole images, by the decoder of the configuration's loader."""
    size, threads = config.global_batch_size, config.loader_threads
    if config.loader == "dali":
        from nvidia.dali import Pipeline, fn, types

        from fourmin.training.data.dali import PREFETCH
        from fourmin.training.data.dali_decoder import decoder_options

        arrays = itertools.cycle([np.frombuffer(data, dtype=np.uint8) for data in encoded])
        pipeline = Pipeline(
            batch_size=size, num_threads=threads, prefetch_queue_depth=PREFETCH, exec_dynamic=True,
            device_id=0 if config.device == "cuda" else None,
        )  # fmt: skip
        with pipeline:
            files = fn.external_source(
                source=lambda: list(itertools.islice(arrays, size)), batch=True,
                dtype=types.UINT8, ndim=1,
            )  # fmt: skip
            options = decoder_options(config.decoder == "mixed")
            pipeline.set_outputs(fn.decoders.image(files, **options))
        pipeline.build()

        def turn() -> int:
            pipeline.run()
            return size

        yield turn
        return

    from PIL import Image

    from fourmin.training.data.torchvision_loader import as_rgb

    def decode(files: list[bytes]) -> None:
        for data in files:
            with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as stored:
                as_rgb(stored)

    endless = itertools.cycle(encoded)
    with ThreadPoolExecutor(threads) as pool:
        yield lambda: in_threads(pool, threads, decode, endless, size)


def in_threads(
    pool: ThreadPoolExecutor,
    threads: int,
    work: Callable[[list[Any]], object],
    endless: Iterator[Any],
    count: int,
) -> int:
    """Do `work` on the next `count`, neighbours together; returns how many these are."""
    items, step = list(itertools.islice(endless, count)), -(-count // threads)
    list(pool.map(work, (items[at : at + step] for at in range(0, count, step))))
    return count
