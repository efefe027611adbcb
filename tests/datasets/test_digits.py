"""The embedded digits: the same bytes everywhere, written once, repaired when altered."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from fourmin.base.errors import FourminError
from fourmin.base.installation import install
from fourmin.datasets.digits import ensure_digits, validation_images
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest

TRAIN = "b52e3b466eadf65eb580f37d612e0f957162e9958c951612e479ad13ebcad8c6"
VAL = "c04e00cc2e14b8212ff3535b87b5e87132675a61a8a66d20069d6f227535a621"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    return ensure_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture
def tree(pristine, tmp_path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(pristine, tmp_path / pristine.name))


def test_digests_are_frozen(pristine):
    """The same with Pillow 10.2, 11.0, 12.0 and 13.0 (libjpeg-turbo 3.0.1 to 3.2.0)."""
    manifest = Manifest.load(pristine / MANIFEST_NAME)
    assert manifest.digest("train") == TRAIN
    assert manifest.digest("val") == VAL


def test_split_is_stratified_and_complete(pristine):
    manifest = Manifest.load(pristine / MANIFEST_NAME)
    train, val = manifest.split("train"), manifest.split("val")
    assert (len(train), len(val)) == (1437, 360)
    assert manifest.class_names == tuple("0123456789")
    totals = Counter(load_digits().target.tolist())
    for label, count in Counter(val.labels).items():
        assert abs(count - totals[label] * 360 / 1797) < 1
    names = [path[2:6] for split in (train, val) for path in split.paths]
    assert sorted(names) == [f"{number:04d}" for number in range(1797)]


def test_pixels_and_labels_are_those_of_scikit_learn(pristine):
    source = load_digits()
    for split in ("train", "val"):
        for path in Manifest.load(pristine / MANIFEST_NAME).split(split).paths:
            position = int(path[2:6])
            assert source.target[position] == int(path[0])
            with Image.open(pristine / split / path) as image:
                assert (image.size, image.mode) == ((16, 16), "L")
                pixels = np.asarray(image).astype(float)
            blocks = pixels.reshape(8, 2, 8, 2).mean(axis=(1, 3))
            assert np.abs(blocks - source.images[position] * 255 / 16).max() < 8


def test_rule_of_the_split_does_not_depend_on_the_order_of_images():
    images = [bytes([value] * 64) for value in range(50)]
    labels = [value % 3 for value in range(50)]
    chosen = {images[i] for i in validation_images(list(images), labels)}
    backwards = images[::-1]
    again = {backwards[i] for i in validation_images(list(backwards), labels[::-1])}
    assert chosen == again


def test_an_intact_tree_is_not_written_again(tree):
    before = os.stat(tree).st_ino
    assert ensure_digits(tree.parent) == tree
    assert os.stat(tree).st_ino == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda tree: (tree / MANIFEST_NAME).unlink(),
        lambda tree: (tree / "val/3").rename(tree / "val/x"),
        lambda tree: next((tree / "train/1").iterdir()).unlink(),
        lambda tree: next((tree / "train/1").iterdir()).write_bytes(b"x"),
        lambda tree: shutil.copy(next((tree / "train/1").iterdir()), tree / "train/1/more.jpg"),
        lambda tree: shutil.rmtree(tree / "train"),
    ],
    ids=["no manifest", "class renamed", "image gone", "image changed", "image more", "half"],
)
def test_a_damaged_tree_is_replaced(tree, damage):
    damage(tree)
    ensure_digits(tree.parent)
    manifest = Manifest.load(tree / MANIFEST_NAME)
    assert (manifest.digest("train"), manifest.digest("val")) == (TRAIN, VAL)
    assert sum(path.is_file() for path in tree.rglob("*")) == 1798
    leftovers = {path.name for path in tree.parent.iterdir()}
    assert leftovers == {tree.name, f".{tree.name}.lock"}


def test_one_flipped_bit_of_the_same_size_is_noticed(tree):
    victim = next((tree / "val/7").iterdir())
    data, times = bytearray(victim.read_bytes()), victim.stat()
    original = bytes(data)
    data[-20] ^= 1
    victim.write_bytes(data)
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    ensure_digits(tree.parent)
    assert victim.read_bytes() == original


def test_processes_at_once_make_one_good_tree(tmp_path):
    code = (
        "import sys; from pathlib import Path; "
        "from fourmin.datasets.digits import ensure_digits; "
        "ensure_digits(Path(sys.argv[1]))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert Manifest.load(tmp_path / "digits-v1" / MANIFEST_NAME).digest("train") == TRAIN


def test_the_user_cache_is_the_default(pristine, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "fourmin").mkdir()
    shutil.copytree(pristine, tmp_path / "fourmin/digits-v1")
    assert ensure_digits() == tmp_path / "fourmin/digits-v1"


def test_a_folder_that_cannot_be_written_is_explained(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FourminError, match="XDG_CACHE_HOME"):
        ensure_digits(tmp_path / "file")


def test_other_digits_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fourmin.datasets.digits.SOURCE_SHA256", "0" * 64)
    with pytest.raises(FourminError, match="scikit-learn"):
        ensure_digits(tmp_path)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(FourminError, match=re.escape(install("train"))):
        ensure_digits(tmp_path)
