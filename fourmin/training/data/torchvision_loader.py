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
from fourmin.training.data.loader import Batch, Loader, Work


class TorchvisionLoader(Loader):
    """Batches decoded by Pillow and transformed by torchvision; arguments as `Loader`."""

    def _batches(self, split: str, work: Iterator[Work]) -> Iterator[Batch]:
        mean = torch.tensor(self.mean, dtype=torch.float32)
        scale = 1 / torch.tensor(self.std, dtype=torch.float32)
        for one, pixels in self.ahead(work, self._square):
            images = (torch.from_numpy(np.stack(pixels)).float() - mean) * scale
            yield Batch(
                images=images.permute(0, 3, 1, 2).to(self.device, self.out_dtype),
                labels=torch.from_numpy(one.labels).to(self.device),
                indices=torch.from_numpy(one.indices.copy()),
            )

    def _square(self, work: Work, position: int) -> np.ndarray:
        """One sample, decoded and cut: uint8, (size, size, 3)."""
        image = self._whole(work.split, int(work.indices[position]))
        plan = work.plan
        (top, left), (height, width) = plan.start[position].tolist(), plan.shape[position].tolist()
        image = transforms.crop(image, top, left, height, width)
        size = plan.size[position].tolist()
        if size != [height, width]:
            image = transforms.resize(image, size, InterpolationMode.BILINEAR)
        row, column = plan.crop[position].tolist()
        image = transforms.crop(image, row, column, self.image_size, self.image_size)
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


def as_rgb(stored: Image.Image) -> Image.Image:
    """RGB of 8 bits, as DALI makes it: of 16 bits grey, Pillow would cut off what exceeds 255."""
    if stored.mode.startswith("I"):
        stored = Image.fromarray((np.asarray(stored) >> 8).astype(np.uint8))
    return stored.convert("RGB")
