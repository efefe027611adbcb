"""The forms that people have a dataset in: what SOURCEs hold, and which image is of which class."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.mishaps import told
from fourmin.datasets.archives import Member, members, packing, unpacked
from fourmin.datasets.catalogue import Found
from fourmin.datasets.check import OTHER_IMAGES, is_junk
from fourmin.datasets.images import printable
from fourmin.datasets.labels import LABEL_FILE, WNID, Labels
from fourmin.datasets.manifest import is_image_name, name_fault
from fourmin.datasets.tfrecord import records

FOLDER, TAR, CLASS_TAR = "folder", "tar", "class tar"
PACKED, PARQUET, RECORDS = "packed archive", "parquet file", "TFRecord file"
_SPLITS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
_NOT_TAKEN = re.compile(r"bbox|_t3\.tar|test_v\d|annotations?\.(?:tar|zip)", re.IGNORECASE)
"""Archives that lie beside those of images in the download."""
_PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip", ".parquet")
_RECORDS = re.compile(r"tfrecords?\b|^\w+-\d{5}-of-\d{5}$", re.IGNORECASE)
_BETWEEN = {"images", "image", "imgs"}
"""Folders that are no class: Tiny ImageNet has `train/<wnid>/images/`, and `val/images/`."""
_WNID_FIRST = re.compile(r"(n\d{8})_")
_WNID_LAST = re.compile(r"_(n\d{8})(?=\.\w+$)")


@dataclass
class Unit:
    """One file, or one folder of images, that is taken: its form in words, and what of it it is."""

    path: Path
    form: str
    hint: str | None
    above: tuple[str, ...] = ()

    def is_packed(self) -> bool:
        """Whether it must be unpacked first. Raises FourminError for what is no archive."""
        name = self.path.name.lower()
        return name.endswith((".parquet", ".zip")) or bool(
            self.form not in (FOLDER, RECORDS) and packing(self.path)
        )


@dataclass
class Sources:
    """What lies in the folders and files that were named."""

    units: list[Unit] = field(default_factory=list)
    label_files: list[Path] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    labels: Labels = field(default_factory=Labels)

    def files(self) -> list[Path]:
        return [unit.path for unit in self.units if unit.form != FOLDER] + self.label_files

    def ignore(self, name: str, into: list[str] | None = None) -> None:
        """Note a file that is left out; the names of a million are not kept."""
        into = self.ignored if into is None else into
        into.append(printable(name) if len(into) < 1000 else "")


def look_into(paths: Sequence[Path]) -> Sources:
    """Find what can be taken of `paths`, without opening images. Raises FourminError."""
    found = Sources()
    for path in paths:
        if path.is_dir():
            _walk(path, found)
        elif not _take_file(path, (), _hint((path.name,)), found):
            raise FourminError(
                f"{path} is no form of a dataset that is known here",
                "known: tar, tar.gz, zip, parquet, TFRecord, and label files (devkit, csv, txt)",
                "name the folder of its images, or what it was made from",
            )
    for path in found.label_files:
        found.labels.read(path)
    return found


def _files(root: Path) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Every file in a folder and below, with the folders above it; links are followed, but in no
    circle, and what systems leave beside anybody's files is left out. Raises FourminError.
    """

    def stop(error: OSError) -> None:
        with _reading(error.filename):
            raise error

    done: set[str] = set()
    for folder, folders, files in os.walk(root, followlinks=True, onerror=stop):
        real = os.path.realpath(folder)
        folders[:] = sorted(n for n in folders if real not in done and not is_junk(n))
        if real not in done:
            above = Path(folder).relative_to(root).parts
            yield from ((above, Path(folder, n)) for n in sorted(files) if not is_junk(n))
        done.add(real)


def _reading(path: Path | str) -> AbstractContextManager[None]:
    step = "make it readable for this user (chmod), mend the link, or name sources without it"
    return told(f"cannot read {printable(str(path))}", step)


def _walk(root: Path, found: Sources) -> None:
    """Take the files in a folder and below."""
    images, outer = 0, _hint((root.name,))
    for above, path in _files(root):
        inside = _hint([part for part in above if part.lower() in _SPLITS]) or outer
        if is_image_name(path.name):
            images += 1
        elif path.name.lower().endswith(OTHER_IMAGES) and inside:
            found.not_read.append(printable(str(path)))
        elif not _take_file(path, above, _hint((path.name,)) or inside, found):
            found.ignore(str(path))
    if images:
        found.units.insert(0, Unit(root, FOLDER, outer))


def _take_file(path: Path, above: tuple[str, ...], hint: str | None, found: Sources) -> bool:
    """Whether a file is one that is taken, by its name."""
    name = path.name.lower()
    if "devkit" in name or LABEL_FILE.fullmatch(name):
        found.label_files.append(path)
        return True
    if _NOT_TAKEN.search(name):
        return False
    if name.endswith(_PACKED):
        form = PARQUET if name.endswith(".parquet") else PACKED
    elif name.endswith(".tar"):
        form = TAR
        if WNID.fullmatch(path.stem):
            above, form = (*above, path.stem), CLASS_TAR
    elif _RECORDS.search(name):
        form = RECORDS
    else:
        return False
    found.units.append(Unit(path, form, hint, above))
    return True


def _hint(parts: Sequence[str]) -> str | None:
    """The split that a name speaks of: `ILSVRC2012_img_val.tar` has val between its letters."""
    words = [word for part in parts for word in re.split("[^a-z]+", part.lower())]
    return next((_SPLITS[word] for word in words if word in _SPLITS), None)


def images_of(unit: Unit, work: Path, found: Sources) -> Iterator[Found]:
    """The images of a unit; what has no split is left out. Packed ones were unpacked to `work`."""
    for file, changed, member in _members(unit, work):
        place = _place(unit, member)
        if place is not None:
            where = os.fsencode(file), member.at, member.size, changed
            yield Found(place[0], *where, *place[1:])
        elif member.parts and LABEL_FILE.fullmatch(member.parts[-1]):
            with file.open("rb") as opened:
                opened.seek(member.at)
                data = opened.read(member.size)
            found.labels.take(member.parts[-1], data, f"{unit.path.name}: {member.parts[-1]}")
        elif member.parts:
            other = member.parts[-1].lower().endswith(OTHER_IMAGES)
            into = found.not_read if other else None
            found.ignore(f"{unit.path.name}: {'/'.join(member.parts)}", into)


def _members(unit: Unit, work: Path) -> Iterator[tuple[Path, int, Member]]:
    """The file that holds it, its time of change, and each image of a unit."""
    if unit.form == FOLDER:
        for above, path in _files(unit.path):
            if is_image_name(path.name):
                with _reading(path):
                    stat = path.stat()
                yield path, stat.st_mtime_ns, Member((*above, path.name), 0, stat.st_size, {})
        return
    path = unpacked(unit.path, work) if unit.is_packed() else unit.path
    changed = path.stat().st_mtime_ns
    for member in records(path) if unit.form == RECORDS else members(path):
        yield path, changed, member


def _place(unit: Unit, member: Member) -> tuple[str, str | None, str | None, int | None] | None:
    """Split, name, class and label of an image, by its path and what is said beside it."""
    *folders, name = [*unit.above, *member.parts] or [""]
    said = member.said
    at = next((i for i, part in enumerate(folders) if part.lower() in _SPLITS), -1)
    split = _SPLITS[folders[at].lower()] if at >= 0 else unit.hint
    is_image = said.get("json") or is_image_name(name)
    if split is None or not is_image or any(map(is_junk, (*folders, name))):
        return None
    if isinstance(said.get("filename"), str):
        name = os.path.basename(said["filename"])
    wnid = _WNID_LAST.search(name) or _WNID_FIRST.match(name)
    text = str(said.get("label", "")).strip()
    number = int(text) if text.isdigit() and len(text) < 7 else None
    inner = [part for part in folders[at + 1 :] if part.lower() not in _BETWEEN and not said]
    words = text if said and text and not re.fullmatch(r"-?\d+|None", text) else ""
    class_name = words or (inner[0] if inner else "") or (wnid[1] if wnid else "")
    if wnid and wnid.re is _WNID_LAST and wnid[1] == class_name:
        name = _WNID_LAST.sub("", name)
    if said and (not is_image_name(name) or os.path.splitext(name)[0].isdigit()):
        name = ""  # What only counts is no name: who wrote the samples gave it to them.
    for one in filter(None, (class_name, name)):
        fault = name_fault(one) or ("it is no name" if one in (".", "..") or "/" in one else "")
        if fault:
            raise FourminError(
                f"{printable(one)!r} in {unit.path} cannot be a class or an image",
                fault,
                "give it another name",
            )
    return split, name or None, class_name or None, number
