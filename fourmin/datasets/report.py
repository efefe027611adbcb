"""What a check of a dataset found, and how that differs from a benchmark's dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fourmin.datasets.catalogue import PINS, Catalogue, Equal, too_many_in_both
from fourmin.datasets.labels import WNID
from fourmin.datasets.manifest import SPLITS, Manifest

_EXAMPLES = 5
_TAR_OVERHEAD = 512 + 256
"""Bytes of an image in a tar beside its own: a header, and half a block on average."""
_SIZE_SLACK = 0.005
_DUPLICATE = "have the same content as another image of their split"
_IN_BOTH = "are byte for byte a training image too; the manifest names them"
_LISTED = "lie in both splits, as the benchmark lists"


class Known(NamedTuple):
    """Datasets as benchmarks describe them: the one that images should be, if any, and all."""

    expected: Mapping[str, Any] = {}
    all: Sequence[Mapping[str, Any]] = ()


NOTHING_KNOWN = Known()


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
    beside: Mapping[str, Any] = field(default_factory=dict)
    """The dataset that the images were compared with, as a benchmark describes it."""
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
            "problems": [vars(one) for one in self.problems],
            "notes": [vars(one) for one in self.notes.values()],
            "manifest": None if self.manifest_path is None else str(self.manifest_path),
            "digests": {}
            if self.manifest is None
            else {name: self.manifest.digest(name) for name in SPLITS},
            "pins": {} if self.manifest is None else dict(self.manifest.pins),
            "in_both_splits": len(self.in_both),
            "beside": self.beside_official(),
        }

    def beside_official(self) -> list[str]:
        """How the images compare with the dataset that they can be a form of, in lines."""
        if self.manifest is None or not self.beside:
            return []
        name = self.beside["name"]
        pinned = any(self.beside.get(f"{split}_{by}") for split in ("train", "eval") for by in PINS)
        found = compare_with_benchmark(self.manifest, self.beside)
        said = [f"beside {name}: {one}" for one in found] or [f"counts and classes are {name}'s"]
        return said + ([] if pinned else [f"the ruleset does not pin {name}: a result will say so"])

    def note(self, text: str, path: str) -> None:
        self.notes.setdefault(text, Note(text)).add(path)

    def problem(self, path: str, reason: str) -> None:
        self.problems.append(DataProblem(path, reason))

    def settle(self, catalogue: Catalogue, known: Known, about: Mapping[str, Any]) -> None:
        """Count and compare the images that were seen, which `catalogue` has sorted.

        The manifest is made, with `about` in its header, where there is no problem.
        """
        query = "SELECT split || '/' || path, notes FROM found WHERE notes != '' ORDER BY rowid"
        for name, notes in catalogue.db.execute(query):
            for text in notes.split("\n"):
                self.note(text, name)
        counts = dict(catalogue.ask("SELECT split, count(*) FROM found GROUP BY split"))
        self.images = {name: counts.get(name, 0) for name in SPLITS}
        self.total_bytes = catalogue.ask("SELECT ifnull(sum(bytes), 0) FROM found")[0][0]
        classes = catalogue.class_names()
        self.classes = len(classes)
        self._compare_equal(catalogue, known.expected)
        self.problems.sort(key=lambda problem: problem.path.encode(errors="surrogateescape"))
        if self.ok:
            self.beside = known.expected or likely(known.all, classes)
            others = catalogue.not_original(self.beside)
            more = {"not_original": others} if others else {}
            self.manifest = catalogue.manifest(classes, {**about, **more})

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


def likely(known: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> Mapping[str, Any]:
    """Which of the datasets in `known` one with these classes can be a form of; empty if none.

    Classes called by WordNet ids are ImageNet's or those of a dataset made from it.
    """
    if not classes or not all(map(WNID.fullmatch, classes)):
        return {}
    same = (one for one in known if "imagenet" in one["name"] and one["classes"] == len(classes))
    return next(same, next((one for one in known if "archives" in one), {}))


def compare_with_benchmark(manifest: Manifest, expected: Mapping[str, Any]) -> list[str]:
    """Differences between a manifest and what a benchmark states, in plain words.

    `expected` is the `dataset` of a benchmark: any of `classes`, `train_samples` and
    `eval_samples` (numbers), `train_digest` and `eval_digest`, `train_pin` and `eval_pin`, and the
    official `archives`. What is absent or None is not compared.
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
        # Names and order may be others where the images are pinned.
        for by, found in (("pin", manifest.pins[name]), ("digest", split.digest)):
            digest = expected.get(f"{key}_{by}")
            if digest is not None and digest != found:
                what = f"the {word} images have the {by} {found}, the benchmark's is {digest}"
                differences.append(what)
            if digest is not None:
                break
        official = [a for a in expected.get("archives", {}).values() if a["split"] == name]
        size = sum(split.sizes) + _TAR_OVERHEAD * len(split)
        if images == len(split) and official and abs(size / official[0]["bytes"] - 1) > _SIZE_SLACK:
            differences.append(
                f"the {word} images would fill an archive of {size:,} bytes, and the official one "
                f"has {official[0]['bytes']:,}: they were resized or encoded anew"
            )
    others = manifest.about.get("not_original", ())
    return differences + [f"not the original file: {one}" for one in others]
