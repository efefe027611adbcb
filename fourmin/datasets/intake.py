"""Takes sources into a catalogue, with split and class of each image, or says what is missing."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fourmin.base.errors import FourminError
from fourmin.datasets.archives import unpack
from fourmin.datasets.catalogue import Catalogue
from fourmin.datasets.images import damaged, printable
from fourmin.datasets.labels import DEVKIT, Labels
from fourmin.datasets.manifest import SPLITS
from fourmin.datasets.pool import Progress, spread
from fourmin.datasets.report import Known
from fourmin.datasets.sources import PARQUET, RECORDS, Sources, images_of, look_into

WORDS = {"train": "training", "val": "validation", "test": "test"}
_LAYOUTS = {
    "ILSVRC2012_img_": "ImageNet in its official archives",
    "/CLS-LOC/": "ImageNet in Kaggle's folders",
    "tiny-imagenet": "Tiny ImageNet",
    "cifar-10": "CIFAR-10",
}
_USUALLY = {
    "train": "ILSVRC2012_img_train.tar; a folder `train` with a folder for each class; parquet or "
    "TFRecord files with train in their names",
    "val": "ILSVRC2012_img_val.tar; a folder `val`; parquet or TFRecord files with validation in "
    "their names",
    "labels": f"{DEVKIT}; LOC_val_solution.csv; val_annotations.txt; a CSV of image and class",
}
"""Where in a download something is."""


@dataclass
class Intake:
    """What was taken: `told` says it in lines, `named` whether images have names of their own."""

    sources: Sources
    told: list[str] = field(default_factory=list)
    named: bool = True

    def missing(self, what: str, key: str) -> FourminError:
        return FourminError(
            what,
            f"recognised: {'; '.join(self.told) or 'no images'}",
            f"name as SOURCE too what has them, usually one of: {_USUALLY[key]}",
        )


def take_in(
    catalogue: Catalogue,
    paths: Sequence[Path],
    work: Path,
    workers: int,
    progress: Progress,
) -> Intake:
    """List the images of `paths` in `catalogue`, each with its split and class.

    Raises FourminError where something is missing or damaged.
    """
    taken = Intake(look_into(paths))
    units = taken.sources.units
    packed = [unit.path for unit in units if unit.is_packed()]
    processes = min(len(packed), workers) or 1
    for number, _ in enumerate(spread(unpack, work, packed, processes, "unpacking"), 1):
        progress(number, len(packed))
    names: dict[str, list[str]] = defaultdict(list)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    query = "SELECT split, count(*) FROM images WHERE id > ? GROUP BY split"
    with catalogue.db:
        for unit in units:
            before = catalogue.last()
            catalogue.add(images_of(unit, work, taken.sources))
            names[unit.form].append(unit.path.name)
            counts[unit.form].update(dict(catalogue.ask(query, before)))
    where = str([*catalogue.ask("SELECT CAST(min(file) AS TEXT) FROM images"), *names.values()])
    taken.told += [word for mark, word in _LAYOUTS.items() if mark in where][:1]
    for form, some in names.items():
        images = ", ".join(f"{n:,} {WORDS[s]}" for s, n in sorted(counts[form].items())) or "no"
        more = f" and {len(some) - 2:,} more" if some[2:] else ""
        taken.told.append(f"{form} {', '.join(some[:2])}{more}: {images} images")
    if others := taken.sources.ignored:
        what = f"no image of a split by place and name: {others[0]}"
        taken.told.append(f"{len(others):,} other files are left out, {what}, ...")
    with catalogue.db:
        _settle_splits(catalogue, taken)
        _label_by_name(catalogue, taken)
        _name_classes(catalogue, taken)
    _compare_classes(catalogue, taken)
    _settle_names(catalogue, taken)
    return taken


def official(files: Sequence[Path], known: Known, told: list[str]) -> bool:
    """Whether `files` are the official archives of a dataset, by size and MD5; what is not is told.

    Raises FourminError for one with the official name and size, and other bytes.
    """
    for archives in [one["archives"] for one in known.all if "archives" in one][:1]:
        found = 0
        for path in files:
            said = archives.get(path.name, {})
            size = path.stat().st_size
            if not said:
                continue
            if size == said.get("bytes", size):
                digest = hashlib.md5(usedforsecurity=False)
                with path.open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
                if digest.hexdigest() == said["md5"]:
                    found += 1
                    continue
                if "bytes" in said:
                    raise damaged(path, f"its MD5 is {digest.hexdigest()}, not {said['md5']}")
            told.append(f"{path.name} is not the official archive of this name, by size or MD5")
        return found == len(archives)
    return False


def _settle_splits(catalogue: Catalogue, taken: Intake) -> None:
    """The images called test are validation images where no others are there."""
    found = dict(catalogue.ask("SELECT split, count(*) FROM images GROUP BY split"))
    if "test" in found and "val" in found:
        catalogue.db.execute("DELETE FROM images WHERE split = 'test'")
        taken.told.append(f"the {found['test']:,} test images are left out")
    elif "test" in found:
        catalogue.db.execute("UPDATE images SET split = 'val' WHERE split = 'test'")
        found["val"] = found["test"]
    for split in SPLITS:
        if split not in found:
            raise taken.missing(f"there are no {WORDS[split]} images", split)
    if taken.sources.not_read:
        raise FourminError(
            f"{len(taken.sources.not_read):,} images are in a form that no loader here decodes",
            f"neither JPEG nor PNG by name: {', '.join(taken.sources.not_read[:3])}",
            "name a source that has the original files; an image converted is another image",
        )


def _label_by_name(catalogue: Catalogue, taken: Intake) -> None:
    """Give images in no class folder the class that a label file has for them."""
    bare = catalogue.ask(
        "SELECT id, split, name FROM images WHERE class IS NULL AND label IS NULL "
        "AND name IS NOT NULL ORDER BY split, name"
    )
    if not bare:
        return
    labels = taken.sources.labels
    given = {one: labels.by_name.get(PurePosixPath(name).stem) for one, _, name in bare}
    in_val = [(one, name) for one, split, name in bare if split == "val"]
    if labels.in_order and in_val and not all(given[one] for one, _ in in_val):
        _require_same(labels, [name for _, name in in_val])
        for (one, _), value in zip(in_val, labels.in_order, strict=True):
            given[one] = labels.ids.get(value, "") if labels.ids else value
    lacking = [name for one, _, name in bare if not given[one]]
    if lacking:
        raise taken.missing(
            f"{len(lacking):,} images have no label, such as {printable(lacking[0])}", "labels"
        )
    catalogue.db.executemany(
        "UPDATE images SET class = ?, label = ? WHERE id = ?",
        (
            (None, int(value), one) if value.isdigit() else (value, None, one)
            for one, value in given.items()
            if value
        ),
    )
    taken.told.append(f"labels from {', '.join(labels.origin)}")


def _require_same(labels: Labels, names: Sequence[str]) -> None:
    """Raise FourminError where ground truth in order of the images is not that of `names`."""
    shown, wanted = ", ".join(labels.origin), f"name that of these images: {DEVKIT}"
    if len(labels.in_order) != len(names):
        raise FourminError(
            f"{shown} does not fit the validation images",
            f"it has {len(labels.in_order):,} labels for {len(names):,} images",
            f"{wanted}; or fetch ILSVRC2012_img_val.tar again",
        )
    if any(map(str.isdigit, labels.in_order)) and not labels.ids:
        raise FourminError(
            f"{shown} numbers the classes, and nothing says which they are",
            "the devkit's data/meta.mat has the WordNet id of each number",
            f"name the devkit whole: {DEVKIT}",
        )


def _name_classes(catalogue: Catalogue, taken: Intake) -> None:
    """Give images with a number for a label the name of its class."""
    numbers = [one for (one,) in catalogue.ask(
        "SELECT DISTINCT label FROM images WHERE label IS NOT NULL ORDER BY label"
    )]  # fmt: skip
    pairs = catalogue.ask(
        "SELECT DISTINCT label, class FROM images WHERE label IS NOT NULL AND class IS NOT NULL"
    )
    known = dict(pairs)
    listed = taken.sources.labels.classes
    if not set(numbers) <= set(known) and listed and numbers[-1] - (numbers[0] > 0) < len(listed):
        first = int(numbers[-1] == len(listed))
        known = dict(enumerate(listed, first))
        taken.told.append(f"labels count from {first}, in the order of the classes' names")
    elif not set(numbers) <= set(known):
        known = {number: f"{number:04d}" for number in numbers}
        taken.told.append(
            "classes are called by their numbers; for WordNet ids, and so for a pin that compares, "
            f"name {DEVKIT} or LOC_synset_mapping.txt too"
        )
    if any(known.get(number) != name for number, name in pairs):
        number, name = next(pair for pair in pairs if known.get(pair[0]) != pair[1])
        raise FourminError(
            "labels and classes do not agree",
            f"label {number} is both {known.get(number)} and {name}",
            "name sources of one dataset, and the label files that belong to it",
        )
    catalogue.db.execute("CREATE TEMP TABLE IF NOT EXISTS known (label INTEGER PRIMARY KEY, class)")
    catalogue.db.executemany("INSERT OR REPLACE INTO known VALUES (?, ?)", known.items())
    catalogue.db.execute(
        "UPDATE images SET class = (SELECT class FROM known WHERE known.label = images.label) "
        "WHERE class IS NULL"
    )
    if lacking := catalogue.count("class IS NULL"):
        raise taken.missing(f"{lacking:,} images have no label", "labels")


def _compare_classes(catalogue: Catalogue, taken: Intake) -> None:
    counts: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    query = "SELECT split, class, count(*) FROM images GROUP BY split, class"
    for split, name, images in catalogue.ask(query):
        counts[split][name] = images
    for has, lacks in (SPLITS, SPLITS[::-1]):
        odd = sorted(counts[has].keys() - counts[lacks].keys())
        if odd:
            more = f" and {len(odd) - 3:,} more" if len(odd) > 3 else ""
            tar = f" (in ILSVRC2012_img_train.tar: {odd[0]}.tar)" if lacks == "train" else ""
            raise FourminError(
                f"{len(odd):,} classes have {WORDS[has]} images but no {WORDS[lacks]} images",
                f"{', '.join(map(printable, odd[:3]))}{more}; recognised: {'; '.join(taken.told)}",
                f"look for what is missing{tar}, or fetch that source again; or name labels that "
                "belong to these images",
            )
    said = taken.sources.labels.images
    if other := [one for one in sorted(said) if counts["train"].get(one) != said[one]]:
        taken.told.append(
            f"{len(other):,} classes have other numbers of training images than the devkit says: "
            f"{other[0]} {counts['train'].get(other[0], 0):,}, not {said[other[0]]:,}"
        )


def _settle_names(catalogue: Catalogue, taken: Intake) -> None:
    """Names count where every image has one of its own; a tree's must be so."""
    twice = catalogue.ask(
        "SELECT split || '/' || class || '/' || name, min(file), max(file) FROM images "
        "WHERE name IS NOT NULL GROUP BY 1 HAVING count(*) > 1 ORDER BY 1 LIMIT 1"
    )
    samples = {PARQUET, RECORDS} & {unit.form for unit in taken.sources.units}
    if twice and not samples and not catalogue.count("label IS NOT NULL"):
        path, first, second = twice[0]
        raise FourminError(
            f"{printable(path)} comes twice",
            f"in {printable(os.fsdecode(first))} and in {printable(os.fsdecode(second))}",
            "name each source once, and no folder beside the archive that it was unpacked from",
        )
    taken.named = not twice and not catalogue.count("name IS NULL")
    if not taken.named:
        taken.told.append("the files have no names of their own: ordered by class and SHA-256")
