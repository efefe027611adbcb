"""Labels that lie beside images: the devkit, CSV and text files of image and class."""

from __future__ import annotations

import csv
import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.installation import install
from fourmin.base.mishaps import told
from fourmin.datasets.images import whole

LABEL_FILE = re.compile(
    r"meta\w*\.mat|(?!.*(?:train|sample_submission)).*\.[ct]sv"
    r"|(?!.*train)(?:.*(?:ground_truth|annotations|synset|label|wnids).*|val\w*)\.txt",
    re.IGNORECASE,
)
WNID = re.compile(r"n\d{8}")
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
_LONGEST = 64 << 20
_IMAGE_TITLES = ("imageid", "image", "image_id", "filename", "file_name", "file", "path", "name")
_LABEL_TITLES = ("predictionstring", "label", "class", "wnid", "synset", "category", "target")


@dataclass
class Labels:
    """What label files say.

    `by_name` gives the label of an image's name without suffix, `in_order` those of the validation
    images in the order of their names; `classes` are the classes' names by label, `ids` by the
    devkit's numbers. `origin` names the files.
    """

    by_name: dict[str, str] = field(default_factory=dict)
    in_order: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)
    """Training images that the devkit counts in each class."""
    origin: list[str] = field(default_factory=list)

    def read(self, path: Path) -> None:
        """Take in a label file, or a devkit packed as a tar. Raises FourminError."""
        from fourmin.datasets.archives import BROKEN  # a Python may lack what unpacks xz

        with told(f"cannot read {path}"), whole(path, BROKEN):
            if path.name.lower().endswith((".tar", ".gz", ".tgz")):
                with tarfile.open(path) as archive:
                    for member in archive:
                        name = PurePosixPath(member.name).name
                        if member.isfile() and LABEL_FILE.fullmatch(name):
                            file = archive.extractfile(member)
                            assert file is not None
                            self.take(name, file.read(_LONGEST), f"{path.name}: {name}")
            elif path.stat().st_size <= _LONGEST:
                self.take(path.name, path.read_bytes(), path.name)

    def take(self, name: str, data: bytes, shown: str) -> None:
        """Take in the content of a label file, which is called `shown`. Raises ValueError."""
        if name.endswith(".mat"):
            self._take_devkit(name, data, shown)
            return
        rows = [*_rows(name, data.decode(errors="replace"))]
        firsts = [row[0] for row in rows]
        listed = rows and all(map(WNID.fullmatch, firsts)) and len({*firsts}) == len(firsts)
        if listed and "val" not in name.lower():
            self.classes = sorted(firsts)
        elif rows and all(len(row) == 1 for row in rows):
            self.in_order = firsts
        else:
            self.by_name |= {PurePosixPath(row[0]).stem: row[1] for row in rows if len(row) > 1}
        self.origin.append(shown)

    def _take_devkit(self, name: str, data: bytes, shown: str) -> None:
        """The classes of the devkit's meta.mat, whose numbers its ground truth has."""
        with told(
            f"{shown} cannot be read here",
            f"{install('train')}; or name labels in a CSV (image, class)",
            ImportError,
        ):
            from scipy.io import loadmat
        try:
            synsets: Any = loadmat(io.BytesIO(data), squeeze_me=True)["synsets"]
        except Exception as error:
            # It parses a binary format, and raises what it meets.
            raise ValueError(f"{name} has no table `synsets`: {error}") from error
        years = [one[6:10] for one in synsets.dtype.names if one.endswith("_ID")]
        if years != ["2012"]:
            raise FourminError(
                f"{shown} is the devkit of another year",
                f"its classes have the numbers of ILSVRC {', '.join(years) or 'of no year'}, "
                "and another year numbers them otherwise",
                f"name that of 2012: {DEVKIT}",
            )
        for one in synsets.reshape(-1):
            if int(one["num_children"]) == 0:
                self.ids[str(int(one["ILSVRC2012_ID"]))] = str(one["WNID"])
                self.images[str(one["WNID"])] = int(one["num_train_images"])
        self.classes = sorted(self.ids.values())
        self.origin.append(shown)


def _rows(name: str, text: str) -> Iterator[list[str]]:
    """Image and label of each line, or the one field that it has."""
    if name.lower().endswith(".csv"):
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
        titles = [title.strip().lower() for title in rows[0]] if rows else []
        image = next((at for at, title in enumerate(titles) if title in _IMAGE_TITLES), 0)
        label = next((at for at, title in enumerate(titles) if title in _LABEL_TITLES), image + 1)
        for row in rows[image != label - 1 or titles[0] in _IMAGE_TITLES :]:
            # More may stand behind a label: Kaggle has `n03995372 85 1 499 272`.
            yield [row[image], *(" ".join(row[label : label + 1]).split()[:1])]
        return
    for line in text.splitlines():
        if fields := line.split():
            yield fields[:2]
