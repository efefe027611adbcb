"""DALI's decoder alone, for `fourmin bench data`: encoded images in memory to whole images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from nvidia.dali import Pipeline, fn, types

from fourmin.training.data.dali import PREFETCH
from fourmin.training.data.dali_decoder import decoder_options


class DaliDecoder:
    """Decodes batches of what `next_batch` gives, on the CPU or with the GPU's help (mixed)."""

    def __init__(
        self,
        next_batch: Callable[[], list[np.ndarray]],
        batch_size: int,
        threads: int,
        device: torch.device,
        *,
        mixed: bool,
    ) -> None:
        self._batch_size = batch_size
        on_gpu = device.type == "cuda"
        self._pipeline = Pipeline(
            batch_size=batch_size,
            num_threads=threads,
            device_id=(device.index or 0) if on_gpu else None,
            prefetch_queue_depth=PREFETCH,
            exec_dynamic=True,
        )
        with self._pipeline:
            encoded = fn.external_source(source=next_batch, batch=True, dtype=types.UINT8, ndim=1)
            images = fn.decoders.image(encoded, **decoder_options(mixed))
            self._pipeline.set_outputs(images)
        self._pipeline.build()

    def run(self) -> int:
        """Decode one batch; returns its images."""
        self._pipeline.run()
        return self._batch_size

    def close(self) -> None:
        """Free the pipeline."""
        del self._pipeline
