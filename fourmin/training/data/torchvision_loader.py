"""The loader of Pillow and torchvision: the same samples and pixels as DALI's, by CPU threads.

It is for machines without DALI and for comparison; decoding and scaling in Pillow let the
other threads run.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as transforms

from fourmin.datasets.columns import Split
from fourmin.training.data.loader import Ahead, Batch, Loader, Stream, Work


class TorchvisionLoader(Loader):
    """Batches decoded by Pillow and transformed by torchvision; arguments as `Loader`."""

    def _open(self, split: str, work: Iterator[Work]) -> Stream:
        return _Squares(self, self.ahead(work, self._squares))

    def _squares(self, work: Work, positions: range) -> list[np.ndarray]:
        return [self._square(work, position) for position in positions]

    def _square(self, work: Work, position: int) -> np.ndarray:
        """One sample, decoded and cut: uint8, (height, width, 3)."""
        image = self._whole(work.split, int(work.indices[position]))
        plan = work.plan
        (top, left), (height, width) = plan.start[position].tolist(), plan.shape[position].tolist()
        image = transforms.crop(image, top, left, height, width)
        size = plan.size[position].tolist()
        if size != [height, width]:
            image = transforms.resize(image, size, InterpolationMode.BILINEAR)
        row, column = plan.crop[position].tolist()
        image = transforms.crop(image, row, column, *plan.window[position].tolist())
        if plan.mirror[position]:
            image = transforms.hflip(image)
        return np.asarray(image)

    def _whole(self, split: Split, index: int) -> Image.Image:
        """A sample as it is stored, out of the cache where it holds it."""
        if self.cache is None:
            return self._decoded(split, index)
        pixels = self.cache.get(split.name, index)
        if pixels is not None:
            return Image.fromarray(pixels)
        image = self._decoded(split, index)
        self.cache.put(split.name, index, np.array(image))
        return image

    def _decoded(self, split: Split, index: int) -> Image.Image:
        data = self.read_file(split, index)
        try:
            with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as stored:
                image = as_rgb(stored)
        except Exception as error:
            # Pillow's plugins raise many types for broken files.
            raise self.undecodable(split, index, error) from error
        self.source.check_shape(split, index, image.height, image.width)
        return image


class _Squares(Stream):
    """Batches of what the loader's threads have cut."""

    def __init__(self, loader: Loader, ahead: Ahead) -> None:
        self._loader = loader
        self._ahead = ahead
        self._mean = torch.tensor(loader.mean, dtype=torch.float32)
        self._scale = 1 / torch.tensor(loader.std, dtype=torch.float32)

    def begin(self) -> None:
        self._ahead.begin()

    def __next__(self) -> Batch:
        work, pixels = next(self._ahead)
        images = (torch.from_numpy(np.stack(pixels)).float() - self._mean) * self._scale
        loader = self._loader
        return Batch(
            images=images.permute(0, 3, 1, 2).to(loader.device, loader.out_dtype),
            labels=torch.from_numpy(work.labels).to(loader.device),
            indices=torch.from_numpy(work.indices.copy()),
        )

    def close(self) -> None:
        self._ahead.close()


def as_rgb(stored: Image.Image) -> Image.Image:
    """RGB of 8 bits, as DALI makes it: of 16 bits grey, Pillow would cut off what exceeds 255."""
    if stored.mode.startswith("I"):
        stored = Image.fromarray((np.asarray(stored) >> 8).astype(np.uint8))
    return stored.convert("RGB")
