"""Images as they are found in a source, in a database on the disk.

A million images are sorted, counted and compared there, not in memory. `images` says where each
lies and what it is called, and is listed anew by each command; `seen` keeps what the bytes of an
image were found to be, by file, place, size and time of change, so that a command that goes on
after a kill does not read them again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from fourmin.base.errors import FourminError
from fourmin.datasets.images import Scanned
from fourmin.datasets.manifest import BY_HASH, BY_NAME, ImageRow, Manifest

_KEY = "file, at, size, changed"
_TABLES = f"""
PRAGMA synchronous = OFF;
DROP TABLE IF EXISTS images;
DROP TABLE IF EXISTS found;
CREATE TABLE images (
    id INTEGER PRIMARY KEY, split TEXT, class TEXT, label INTEGER, name TEXT,
    file BLOB, at INTEGER, size INTEGER, changed INTEGER);
CREATE TABLE IF NOT EXISTS seen (
    file BLOB, at INTEGER, size INTEGER, changed INTEGER,
    sha256 BLOB, bytes INTEGER, width INTEGER, height INTEGER, png INTEGER, notes TEXT,
    PRIMARY KEY ({_KEY})) WITHOUT ROWID;
"""
_NAMED = "class || '/' || name"
_HASHED = "class || '/' || lower(hex(sha256)) || CASE png WHEN 1 THEN '.png' ELSE '.jpg' END"
# Equal images of one class, in a source without names, are told apart by a number.
_FOUND = f"""
CREATE TABLE found AS SELECT split, CASE same WHEN 1 THEN path ELSE
    substr(path, 1, length(path) - 4) || '-' || same || substr(path, -4) END AS path,
    bytes, sha256, width, height, png, notes, file, at, size
FROM (SELECT *, row_number() OVER (PARTITION BY split, path ORDER BY file, at) AS same FROM
    (SELECT *, %s AS path FROM images JOIN seen USING ({_KEY})))
ORDER BY 1, 2;
CREATE INDEX by_hash ON found (sha256);
"""
_MOST_IN_BOTH = 0.01
"""Of a validation set, where nothing says which images are in both splits."""


Where: TypeAlias = "tuple[bytes, int, int]"
"""Of an image: its file, first byte there, and bytes (-1: the whole file)."""


class Found(NamedTuple):
    """Where an image lies and what it is called.

    `file` is a path as bytes; the image begins `at` a byte of it and has `size` bytes, -1 for a
    whole file; `changed` is the file's time of change in ns. `class_name`, `label` and `name` are
    None where the source does not say them.
    """

    split: str
    file: bytes
    at: int
    size: int
    changed: int = 0
    name: str | None = None
    class_name: str | None = None
    label: int | None = None


class Equal(NamedTuple):
    """A validation image whose bytes are those of a training image."""

    sha256: str
    train: str
    val: str


class Catalogue:
    """The images of one command. `path` is its file; without one it is gone with the process."""

    def __init__(self, path: Path | None = None) -> None:
        self.order = BY_NAME
        for again in (True, False):
            self.db = sqlite3.connect("") if path is None else _open(path)
            try:
                self.db.executescript(_TABLES)
            except sqlite3.DatabaseError as error:
                self.db.close()
                if path is None or not again:
                    raise FourminError(f"cannot write {path}", str(error)) from error
                # A power cut left half of it: it is only what was read so far.
                path.unlink(missing_ok=True)
            else:
                return

    def add(self, found: Iterable[Found]) -> None:
        self.db.executemany(
            "INSERT INTO images (split, file, at, size, changed, name, class, label) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            found,
        )

    def add_seen(self, file: bytes, scanned: Iterable[Scanned]) -> None:
        """Add images of `file` that were looked at as they were found."""
        first = self.last()
        rows = [(one, one.row) for one in scanned if one.row is not None]
        self.add(
            Found(
                row.split, file, first + at, -1, 0, row.path.split("/")[1], row.path.split("/")[0]
            )
            for at, (_, row) in enumerate(rows)
        )
        self.saw((first + at + 1, one) for at, (one, _) in enumerate(rows))

    def ask(self, query: str, *values: Any) -> list[Any]:
        return self.db.execute(query, values).fetchall()

    def last(self) -> int:
        """The id of the last image that was added."""
        return int(self.ask("SELECT ifnull(max(id), 0) FROM images")[0][0])

    def count(self, where: str = "1") -> int:
        return int(self.ask(f"SELECT count(*) FROM images WHERE {where}")[0][0])

    def unseen(self, size: int) -> Iterator[list[Any]]:
        """(id, split, class, name, file, at, size) of images whose bytes were not looked at."""
        last = -1
        while rows := self.ask(
            "SELECT id, split, class, name, file, at, size FROM images "
            f"LEFT JOIN seen USING ({_KEY}) WHERE sha256 IS NULL AND id > ? ORDER BY id LIMIT ?",
            last,
            size,
        ):
            last = rows[-1][0]
            yield rows

    def saw(self, scanned: Iterable[tuple[int, Scanned]]) -> None:
        """Keep what images were found to be, by their id."""
        rows = (
            (s.row.sha256, s.row.size, s.row.width, s.row.height, s.png, "\n".join(s.notes), one)
            for one, s in scanned
            if s.row is not None
        )
        with self.db:
            self.db.executemany(
                f"INSERT OR REPLACE INTO seen SELECT {_KEY}, ?, ?, ?, ?, ?, ? "
                "FROM images WHERE id = ?",
                rows,
            )

    def sort(self, named: bool = True) -> None:
        """Sort what was seen: by name, or by class and hash."""
        self.order = BY_NAME if named else BY_HASH
        self.db.executescript(_FOUND % (_NAMED if named else _HASHED))

    def rows(self) -> Iterator[ImageRow]:
        """The images in the manifest's order."""
        query = "SELECT split, path, bytes, sha256, width, height FROM found ORDER BY rowid"
        return map(ImageRow._make, self.db.execute(query))

    def equal_images(self) -> Iterator[list[tuple[str, str, str]]]:
        """(split, path, SHA-256) of images with the same bytes, the first of each group first."""
        found = self.db.execute(
            "SELECT split, path, lower(hex(sha256)) FROM found WHERE sha256 IN "
            "(SELECT sha256 FROM found GROUP BY sha256 HAVING count(*) > 1) "
            "ORDER BY sha256, rowid"
        )
        for _, group in groupby(found, itemgetter(2)):
            yield [*group]

    def in_both(self) -> list[Equal]:
        """Validation images that are training images too, by path."""
        found = [
            Equal(sha256, group[0][1], path)
            for group in self.equal_images()
            for split, path, sha256 in group
            if split == "val" and group[0][0] == "train"
        ]
        return sorted(found, key=lambda one: one.val.encode())

    def not_original(self, beside: Mapping[str, Any]) -> list[str]:
        """Images that are not as those of the dataset `beside`: which are CMYK or PNG is known."""
        found: list[str] = []
        for kind, names in beside.get("not_rgb_jpeg", {}).items():
            other = "NOT png" if kind == "PNG" else f"instr(notes, '{kind}') = 0"
            if self.order == BY_NAME:
                # WebDataset shards have other suffixes.
                globs = [f"{name.split('_')[0]}/{name.rpartition('.')[0]}.*" for name in names]
                query = f"SELECT path FROM found WHERE split = 'train' AND path GLOB ? AND {other}"
                paths = [path for glob in globs for (path,) in self.ask(query, glob)]
                found += [f"{path} is {kind} in the original" for path in paths]
                continue
            query = f"SELECT count(*), sum({other}) FROM found WHERE split = 'train'"
            total, others = self.ask(query)[0]
            if total == beside["train_samples"] and total - others < len(names):
                found.append(f"{total - others} are {kind}, {len(names)} in the original")
        return found

    def class_names(self) -> list[str]:
        classes = self.ask("SELECT DISTINCT substr(path, 1, instr(path, '/') - 1) FROM found")
        return sorted((name for (name,) in classes), key=str.encode)

    def manifest(self, names: Sequence[str], about: Mapping[str, Any]) -> Manifest:
        """The manifest of what was seen and sorted, of the classes `names`."""
        equal = [one._asdict() for one in self.in_both()]
        both = {"in_both_splits": equal} if equal else {}
        return Manifest.from_sorted(self.rows(), names, {"order": self.order, **both, **about})


def places(path: Path, first: int, images: int) -> Iterator[Where]:
    """Where images lie, in the manifest's order, by the catalogue that was sorted in `path`.

    Any number of processes may ask at once, as long as none changes it.
    """
    query = "SELECT file, at, size FROM found WHERE rowid > ? ORDER BY rowid LIMIT ?"
    with closing(_open(path, "&mode=ro")) as db:
        yield from db.execute(query, (first, images))


def _open(path: Path, how: str = "") -> sqlite3.Connection:
    # No locks: on network file systems they are often not there, and nobody else changes it.
    return sqlite3.connect(f"file:{quote(str(path))}?nolock=1{how}", uri=True)


def too_many_in_both(
    equal: Collection[Equal], val_images: int, expected: Mapping[str, Any]
) -> list[Equal]:
    """Those that are an error beside what a benchmark says of its dataset (`expected`).

    Where it pins the data or lists those in both splits, any other is; where it does neither,
    all are when they are more than 1% of the validation images.
    """
    listed = expected.get("in_both_splits")
    pinned = any(expected.get(f"{split}_{by}") for split in ("train", "eval") for by in PINS)
    if listed is not None or pinned:
        return [one for one in equal if one.sha256 not in (listed or ())]
    return list(equal) if len(equal) > _MOST_IN_BOTH * val_images else []


PINS = ("digest", "pin")
