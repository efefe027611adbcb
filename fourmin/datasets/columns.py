"""The columns that a manifest's rows are kept in: memory, or a file that processes map."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import lt
from typing import TypeAlias, overload

Column: TypeAlias = "memoryview[int]"
"""One int64 an image, in memory or in a mapped file; numpy views it without a copy."""


class Paths(Sequence[str]):
    """Paths as one text in UTF-8, and where each begins in it, with its length at the end."""

    def __init__(self, starts: Column, text: memoryview[int]) -> None:
        self.starts = starts
        self.text = text

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return str(self.text[self.starts[index] : self.starts[index + 1]], "utf-8")

    def __iter__(self) -> Iterator[str]:
        return (str(self.text[start:end], "utf-8") for start, end in pairwise(self.starts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Split:
    """One split, in sample-index order; every sequence has one item an image.

    `paths` are relative to the split's folder; `labels` index the manifest's `class_names`;
    `sizes` are bytes; `widths` and `heights` pixels; `hashes` the raw SHA-256 of all files,
    32 bytes each.
    """

    name: str
    paths: Paths
    labels: Column
    sizes: Column
    widths: Column
    heights: Column
    hashes: memoryview[int]
    digest: str

    def __len__(self) -> int:
        return len(self.paths)

    def sha256(self, index: int) -> str:
        return self.hashes[32 * index : 32 * index + 32].hex()


class Columns:
    """The rows of one split, as they come."""

    def __init__(self, name: str) -> None:
        self.labels, self.sizes, self.widths, self.heights = (array("q") for _ in range(4))
        self.hashes = bytearray()
        self.digest = hashlib.sha256()
        self._name = name
        self._starts = array("q", [0])
        self._text = bytearray()
        self._last = b""

    def add_sorted(self, paths: Sequence[bytes]) -> None:
        """Add paths that follow the last one. Raises ValueError."""
        if not all(map(lt, (self._last, *paths), paths)):
            raise ValueError(f"the paths of {self._name} are not sorted, or one comes twice")
        self._last = paths[-1]
        ends = accumulate(map(len, paths), initial=len(self._text))
        next(ends)
        self._starts.extend(ends)
        self._text += b"".join(paths)

    def extend(self, rows: list[tuple[bytes, ...]], prefixes: Sequence[bytes]) -> None:
        """Add rows as the manifest's pattern finds them. Raises ValueError.

        `prefixes` are the classes' folders.
        Nothing here is done in Python for each of a million rows.
        """
        if not rows:
            return
        _, labels, digested, paths, sizes, hashes, widths, heights = zip(*rows, strict=True)
        self.add_sorted(paths)
        try:
            # Each ends in ASCII, so that together they are valid only where each one is.
            b"".join(paths).decode()
        except UnicodeDecodeError:
            raise ValueError(f"a path of {self._name} is not UTF-8 text") from None
        numbers = [*map(int, labels)]
        if max(numbers) >= len(prefixes):
            raise ValueError(f"a class index of {self._name} is beyond the class names")
        if not all(map(bytes.startswith, paths, map(prefixes.__getitem__, numbers))):
            path, label = next(
                (path, label)
                for path, label in zip(paths, numbers, strict=True)
                if not path.startswith(prefixes[label])
            )
            raise ValueError(
                f"{self._name}/{path.decode()} does not lie in the folder of its class {label}"
            )
        self.labels.extend(numbers)
        self.sizes.extend(map(int, sizes))
        self.widths.extend(map(int, widths))
        self.heights.extend(map(int, heights))
        self.hashes += bytes.fromhex(b"".join(hashes).decode())
        self.digest.update(b"\n".join(digested) + b"\n")

    def split(self) -> Split:
        return Split(
            name=self._name,
            paths=Paths(memoryview(self._starts), memoryview(self._text)),
            labels=memoryview(self.labels),
            sizes=memoryview(self.sizes),
            widths=memoryview(self.widths),
            heights=memoryview(self.heights),
            hashes=memoryview(self.hashes),
            digest=self.digest.hexdigest(),
        )
