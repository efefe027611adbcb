"""What a check of a dataset found, and how that differs from a benchmark's dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fourmin.datasets.catalogue import Catalogue, Equal, too_many_in_both
from fourmin.datasets.manifest import SPLITS, Manifest

_EXAMPLES = 5
_DUPLICATE = "have the same content as another image of their split"
_IN_BOTH = "are byte for byte a training image too; the manifest names them"
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
    in_both: list[Equal] = field(default_factory=list)
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
            "pins": {} if self.manifest is None else dict(self.manifest.pins),
            "in_both_splits": len(self.in_both),
        }

    def note(self, text: str, path: str) -> None:
        self.notes.setdefault(text, Note(text)).add(path)

    def problem(self, path: str, reason: str) -> None:
        self.problems.append(DataProblem(path, reason))

    def settle(self, catalogue: Catalogue, expected: Mapping[str, Any]) -> None:
        """Count and compare the images that were seen, which `catalogue` has sorted.

        `expected` is the dataset of the benchmark that they should be, as its file describes it.
        """
        query = "SELECT split || '/' || path, notes FROM found WHERE notes != '' ORDER BY rowid"
        for name, notes in catalogue.db.execute(query):
            for text in notes.split("\n"):
                self.note(text, name)
        counts = dict(catalogue.ask("SELECT split, count(*) FROM found GROUP BY split"))
        self.images = {name: counts.get(name, 0) for name in SPLITS}
        self.total_bytes, self.classes = catalogue.ask(
            "SELECT ifnull(sum(bytes), 0), "
            "count(DISTINCT substr(path, 1, instr(path, '/') - 1)) FROM found"
        )[0]
        self._compare_equal(catalogue, expected)
        self.problems.sort(key=lambda problem: problem.path.encode(errors="surrogateescape"))

    def _compare_equal(self, catalogue: Catalogue, expected: Mapping[str, Any]) -> None:
        self.in_both = catalogue.in_both()
        wrong = too_many_in_both(self.in_both, self.images["val"], expected)
        for one in wrong:
            self.problem(f"val/{one.val}", f"has the same content as train/{one.train}")
        for one in set(self.in_both) - set(wrong):
            listed = one.sha256 in expected.get("in_both_splits", ())
            self.note(_LISTED if listed else _IN_BOTH, f"val/{one.val}")
        for name in sorted(
            f"{split}/{path}"
            for group in catalogue.equal_images()
            for at, (split, path, _) in enumerate(group)
            if split in [other for other, _, _ in group[:at]]
        ):
            self.note(_DUPLICATE, name)


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
