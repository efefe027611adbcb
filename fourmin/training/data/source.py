"""Where the bytes of a sample come from: a tree of files, or shards read by offset."""

from __future__ import annotations

import os
import resource
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fourmin.base.errors import FourminError
from fourmin.base.text import command
from fourmin.datasets.columns import Split
from fourmin.datasets.manifest import Manifest
from fourmin.datasets.shards import (
    BLOCK,
    Shard,
    ShardIndex,
    holds_shards,
    image_header,
    sample_name,
)

SPARE_FILES = 256
"""Files that a process may have open beside its shards."""


def open_source(data_dir: Path, manifest: Manifest) -> Source:
    """The shards in `data_dir` where it holds some, else its tree. Raises FourminError."""
    return ShardSource(data_dir, manifest) if holds_shards(data_dir) else TreeSource(data_dir)


class Source(ABC):
    """The bytes of samples, read by any number of threads at once."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    @abstractmethod
    def name_of(self, split: Split, index: int) -> str:
        """What a sample is called in messages."""

    @abstractmethod
    def _read(self, split: Split, index: int) -> bytes:
        """The bytes of a sample, possibly more or fewer than listed. Raises OSError."""

    def read(self, split: Split, index: int) -> bytes:
        """The bytes of a sample. Raises FourminError when they are not as many as listed."""
        try:  # no context manager: this is in the way of every image
            data = self._read(split, index)
        except OSError as error:
            raise FourminError(
                f"cannot read the image {self.name_of(split, index)}",
                error.strerror or str(error),
                f"check the dataset with: {command('data', 'check', self.data_dir)}",
            ) from error
        self.check_size(split, index, len(data))
        return data

    def check_size(self, split: Split, index: int, size: int) -> None:
        """Raise FourminError unless a sample has as many bytes as listed."""
        if size != split.sizes[index]:
            raise self.changed(
                split,
                index,
                f"the manifest lists {split.sizes[index]} bytes, and there are not as many",
            )

    def check_shape(self, split: Split, index: int, height: int, width: int) -> None:
        """Raise FourminError unless a decoded sample is as high and wide as listed."""
        if (width, height) != (split.widths[index], split.heights[index]):
            raise self.changed(split, index, "it is not as wide and high as the manifest lists")

    def changed(self, split: Split, index: int, why: str) -> FourminError:
        return FourminError(
            f"the image {self.name_of(split, index)} has changed",
            why,
            f"check the dataset again with: {command('data', 'check', self.data_dir)}",
        )

    @abstractmethod
    def close(self) -> None:
        """Free what is open; the source can still be read afterwards."""


class TreeSource(Source):
    """A file for each sample."""

    def name_of(self, split: Split, index: int) -> str:
        return f"{self.data_dir}/{split.name}/{split.paths[index]}"

    def _read(self, split: Split, index: int) -> bytes:
        descriptor = os.open(self.name_of(split, index), os.O_RDONLY)
        try:
            # One byte more than listed, so that a file that grew is noticed as well.
            return _read_at(descriptor, split.sizes[index] + 1, 0)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Nothing is left open between two reads."""


class ShardSource(Source):
    """Tar shards: a sample is one read at its offset, with the header that stands before it.

    Each shard is opened once and stays open. Raises FourminError when the index is missing or
    not the manifest's, or the system does not let so many files be open.
    """

    def __init__(self, data_dir: Path, manifest: Manifest) -> None:
        super().__init__(data_dir)
        index = ShardIndex.load(data_dir, manifest)
        self._offsets = index.offsets
        self._shards: dict[str, list[Shard]] = {name: [] for name in manifest.splits}
        for shard in index.shards:
            self._shards[shard.split].append(shard)
        self._firsts = {
            name: [shard.first for shard in shards] for name, shards in self._shards.items()
        }
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()
        _allow_open_files(len(index.shards) + SPARE_FILES)

    def name_of(self, split: Split, index: int) -> str:
        return f"{self.data_dir}/{sample_name(self._shard(split, index), split, index)}"

    def _shard(self, split: Split, index: int) -> Shard:
        return self._shards[split.name][bisect_right(self._firsts[split.name], index) - 1]

    def read_many(self, split: Split, indices: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        """The bytes of samples, which lie side by side in memory. Raises FourminError as `read`."""
        ends = list(accumulate((split.sizes[index] for index in indices), initial=0))
        block = np.empty(ends[-1], dtype=np.uint8)
        memory, header = block.data, bytearray(BLOCK)
        spans = list(pairwise(ends))
        for index, (begin, end) in zip(indices, spans, strict=True):
            try:
                descriptor, at = self._place(split, index)
                found = os.preadv(descriptor, [header, memory[begin:end]], at)
            except OSError:
                found = 0
            if found < BLOCK + end - begin or header != image_header(split, index):
                # In pieces, or an error that is to be told.
                memory[begin:end] = self.read(split, index)
        return [block[begin:end] for begin, end in spans]

    def _read(self, split: Split, index: int) -> bytes:
        descriptor, at = self._place(split, index)
        data = _read_at(descriptor, BLOCK + split.sizes[index], at)
        if data[:BLOCK] != image_header(split, index):
            raise self.changed(split, index, "its tar header is not the one that belongs there")
        return data[BLOCK:]

    def _place(self, split: Split, index: int) -> tuple[int, int]:
        """An open file, and where in it the header of a sample's image begins. Raises OSError."""
        name = self._shard(split, index).name
        descriptor = self._open.get(name)
        if descriptor is None:
            with self._lock:
                descriptor = self._open.get(name)
                if descriptor is None:
                    descriptor = os.open(self.data_dir / name, os.O_RDONLY)
                    self._open[name] = descriptor
        return descriptor, self._offsets[split.name][index] - BLOCK

    def close(self) -> None:
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])


def _read_at(descriptor: int, size: int, offset: int) -> bytes:
    """`size` bytes from `offset`, or as many as there are. Raises OSError."""
    data = os.pread(descriptor, size, offset)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def _allow_open_files(wanted: int) -> None:
    """Raise this process's soft limit on open files where it is lower. Raises FourminError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError) as error:
        raise FourminError(
            f"{wanted:,} files must be open at once to read these shards",
            f"the limit of this process is {soft:,} ({error})",
            "raise it with `ulimit -n`, or write larger shards: fourmin data prepare --shard-size",
        ) from error
