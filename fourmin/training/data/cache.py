"""Decoded images that a worker keeps in memory, so that it decodes each but once."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
"""A whole decoded image: uint8, (height, width, 3), RGB."""


class DecodedCache:
    """Whole images by split and sample index, `limit` bytes of pixels at most.

    Nothing is ever evicted: an epoch asks for every sample once, in an order of its own, so that
    no sample is likelier than another to be asked for next. Threads may use it at once.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        """Bytes of pixels that are kept."""
        self._images: dict[tuple[str, int], Pixels] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._images)

    def get(self, split: str, index: int) -> Pixels | None:
        """The pixels of a sample, read-only, or None where they are not kept."""
        return self._images.get((split, index))

    def put(self, split: str, index: int, pixels: Pixels) -> None:
        """Keep the pixels of a sample, which become read-only, if there is room for them."""
        key = split, index
        with self._lock:
            if key in self._images or self.held + pixels.nbytes > self.limit:
                return
            pixels.flags.writeable = False
            self._images[key] = pixels
            self.held += pixels.nbytes
