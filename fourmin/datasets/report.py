"""What a check of a dataset found, and how that differs from a benchmark's dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fourmin.datasets.images import Scanned
from fourmin.datasets.manifest import SPLITS, ImageRow, Manifest

_EXAMPLES = 5
_DUPLICATE = "have the same content as another image of their split"
_LISTED = "lie in both splits, as the benchmark lists"


@dataclass(frozen=True)
class DataProblem:
    """One thing that must be put right: where (relative to the tree) and why."""

    path: str
    reason: str


@dataclass
class Note:
    """A number of files that are fine but worth knowing, with a few names."""

    text: str
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(path)


@dataclass
class CheckReport:
    """What a check found. `manifest` is None unless the tree is clean."""

    data_dir: Path
    shards: int = 0
    """Shards that hold the images; 0 for a tree."""
    images: dict[str, int] = field(default_factory=dict)
    classes: int = 0
    total_bytes: int = 0
    seconds: float = 0.0
    problems: list[DataProblem] = field(default_factory=list)
    notes: dict[str, Note] = field(default_factory=dict)
    manifest: Manifest | None = None
    manifest_path: Path | None = None

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {
            "data_dir": str(self.data_dir),
            "ok": self.ok,
            "shards": self.shards,
            "images": self.images,
            "classes": self.classes,
            "bytes": self.total_bytes,
            "seconds": round(self.seconds, 3),
            "problems": [{"path": one.path, "reason": one.reason} for one in self.problems],
            "notes": [
                {"text": one.text, "count": one.count, "examples": one.examples}
                for one in self.notes.values()
            ],
            "manifest": None if self.manifest_path is None else str(self.manifest_path),
            "digests": {}
            if self.manifest is None
            else {name: self.manifest.digest(name) for name in SPLITS},
        }

    def note(self, text: str, path: str) -> None:
        self.notes.setdefault(text, Note(text)).add(path)

    def add(self, scanned: Scanned) -> ImageRow | None:
        """Take what one image gave; returns its row where it has one."""
        if scanned.row is None:
            self.problems.append(DataProblem(scanned.name, scanned.problem))
        for text in scanned.notes:
            self.note(text, scanned.name)
        return scanned.row

    def settle(self, rows: list[ImageRow], allowed_in_both: Collection[str]) -> None:
        """Count and compare the rows of all images, which are sorted here.

        `allowed_in_both` are the SHA-256 of files that the benchmark itself has in both splits.
        """
        rows.sort(key=lambda row: (row.split, row.path.encode()))
        self._find_duplicates(rows, allowed_in_both)
        self.images = {name: sum(row.split == name for row in rows) for name in SPLITS}
        self.classes = len({row.path.split("/", 1)[0] for row in rows})
        self.total_bytes = sum(row.size for row in rows)
        self.problems.sort(key=lambda problem: problem.path.encode(errors="surrogateescape"))

    def _find_duplicates(self, rows: Sequence[ImageRow], allowed: Collection[str]) -> None:
        """`rows` are sorted, so that the first of equal files is the same on every machine."""
        times = Counter(row.sha256 for row in rows)
        seen: dict[bytes, dict[str, str]] = {}
        for row in rows:
            if times[row.sha256] == 1:
                continue
            first = seen.setdefault(row.sha256, {})
            name = f"{row.split}/{row.path}"
            other = first.get("train") if row.split == "val" else None
            if other is not None and row.sha256.hex() in allowed:
                self.note(_LISTED, name)
            elif other is not None:
                self.problems.append(DataProblem(name, f"has the same content as {other}"))
            elif row.split in first:
                self.note(_DUPLICATE, name)
            first.setdefault(row.split, name)


def compare_with_benchmark(manifest: Manifest, expected: Mapping[str, Any]) -> list[str]:
    """Differences between a manifest and what a benchmark states, in plain words.

    `expected` is the `dataset` of a benchmark: any of `classes`, `train_samples` and
    `eval_samples` (numbers), `train_digest` and `eval_digest`. What is absent or None is not
    compared.
    """
    differences = []
    classes = expected.get("classes")
    if classes is not None and classes != len(manifest.class_names):
        differences.append(f"{len(manifest.class_names):,} classes, the benchmark has {classes:,}")
    for name, key, word in (("train", "train", "training"), ("val", "eval", "validation")):
        split = manifest.split(name)
        images = expected.get(f"{key}_samples")
        if images is not None and images != len(split):
            differences.append(f"{len(split):,} {word} images, the benchmark has {images:,}")
        digest = expected.get(f"{key}_digest")
        if digest is not None and digest != split.digest:
            differences.append(
                f"the {word} images have the digest {split.digest}, the benchmark's is {digest}"
            )
    return differences
