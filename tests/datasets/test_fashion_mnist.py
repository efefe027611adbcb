"""Fashion-MNIST's tree from its four files: exact pixels, the same bytes on every machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.campaign import requirements
from fourmin.campaign.prepare import prepare
from fourmin.campaign.request import New, Request
from fourmin.cli.data_command import app
from fourmin.datasets import fashion_mnist
from fourmin.datasets.check import check_tree
from fourmin.datasets.fashion_mnist import (
    DEBIAN_FOLDER,
    encode_png,
    ensure_fashion_mnist,
    is_source,
)
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.prepare import prepare_fashion_mnist
from fourmin.ruleset import load_ruleset

COUNTS = {"train": 40, "val": 20}


@pytest.fixture
def source(tmp_path, monkeypatch) -> Path:
    """Four small files of random images in IDX format, two of them packed."""
    folder = tmp_path / "raw"
    folder.mkdir()
    random = np.random.default_rng(2)
    for split, stem in (("train", "train"), ("val", "t10k")):
        count = COUNTS[split]
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 10
        parts = {
            f"{stem}-images-idx3-ubyte": struct.pack(">IIII", 2051, count, 28, 28)
            + images.tobytes(),
            f"{stem}-labels-idx1-ubyte": struct.pack(">II", 2049, count) + labels.tobytes(),
        }
        for name, data in parts.items():
            monkeypatch.setitem(fashion_mnist._SHA256, name, hashlib.sha256(data).hexdigest())
            if split == "train":
                (folder / f"{name}.gz").write_bytes(gzip.compress(data))
            else:
                (folder / name).write_bytes(data)
    monkeypatch.setattr(fashion_mnist, "IMAGES", COUNTS)
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", folder)
    return folder


def pixels(source: Path, stem: str) -> np.ndarray:
    path = source / f"{stem}-images-idx3-ubyte"
    data = path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())
    return np.frombuffer(data[16:], np.uint8).reshape(-1, 28, 28)


def test_pixels_and_labels_are_those_of_the_files(source, tmp_path):
    done = prepare_fashion_mnist(source, tmp_path / "tree")
    assert (done.images, done.shards) == (60, 0)
    for split, stem in (("train", "train"), ("val", "t10k")):
        stored = pixels(source, stem)
        paths = sorted((tmp_path / "tree" / split).glob("*/*.png"), key=lambda path: path.stem)
        assert [path.stem for path in paths] == [f"{i:05d}" for i in range(COUNTS[split])]
        for position, path in enumerate(paths):
            assert path.parent.name == str(position % 10)
            with Image.open(path) as image:
                assert (image.format, image.mode, image.size) == ("PNG", "L", (28, 28))
                assert (np.asarray(image) == stored[position]).all()


def test_the_manifest_is_the_one_that_a_check_writes(source, tmp_path):
    prepare_fashion_mnist(source, tmp_path / "tree")
    written = Manifest.load(tmp_path / "tree" / MANIFEST_NAME)
    assert check_tree(tmp_path / "tree", workers=1).manifest == written


@pytest.mark.parametrize(("width", "height"), [(28, 28), (1, 1), (255, 250), (3, 7)])
def test_the_encoder_writes_what_pillow_reads(width, height):
    data = np.random.default_rng(width).integers(0, 256, (height, width), dtype=np.uint8)
    with Image.open(io.BytesIO(encode_png(data.tobytes(), width, height))) as image:
        image.load()
        assert (np.asarray(image) == data).all()


def test_a_run_has_the_tree_made_once(source, tmp_path):
    folder = ensure_fashion_mnist(tmp_path / "cache")
    before = os.stat(folder).st_ino
    assert ensure_fashion_mnist(tmp_path / "cache") == folder
    assert os.stat(folder).st_ino == before
    (folder / MANIFEST_NAME).write_bytes(b"half")
    assert Manifest.load(ensure_fashion_mnist(tmp_path / "cache") / MANIFEST_NAME)


def test_another_file_is_refused(source, tmp_path):
    victim = source / "t10k-labels-idx1-ubyte"
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    with pytest.raises(FourminError, match="not the published file"):
        prepare_fashion_mnist(source, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    victim = source / "train-images-idx3-ubyte.gz"
    victim.write_bytes(victim.read_bytes()[:-9])
    with pytest.raises(FourminError, match=f"cannot read {victim}"):
        prepare_fashion_mnist(source, tmp_path / "tree")


def test_a_folder_with_something_in_it_is_left_alone(source, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/mine").touch()
    with pytest.raises(FourminError, match="not empty"):
        prepare_fashion_mnist(source, tmp_path / "tree")
    assert [path.name for path in (tmp_path / "tree").iterdir()] == ["mine"]


def test_the_command_knows_the_files(source, tmp_path):
    done = CliRunner().invoke(app, ["prepare", str(source), str(tmp_path / "tree")])
    assert done.exit_code == 0
    assert "60 images" in done.output
    (source / "t10k-labels-idx1-ubyte").unlink()
    assert not is_source(source)


def test_a_new_user_is_told_where_the_data_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "nothing")
    monkeypatch.setattr(requirements, "installed_version", lambda name: "1.0")
    monkeypatch.setattr(requirements, "usable_gpus", lambda: 0)
    with pytest.raises(FourminError, match="fashion-mnist is not here") as caught:
        prepare(New(Request("fashion-mnist", results_dir=tmp_path / "results"))).require()
    assert "apt-get install dataset-fashion-mnist" in caught.value.next_step
    assert "fourmin data prepare" in caught.value.next_step
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
@pytest.mark.skipif(not is_source(DEBIAN_FOLDER), reason="dataset-fashion-mnist is not installed")
def test_the_published_files_give_the_benchmarks_digests(tmp_path):
    manifest = Manifest.load(ensure_fashion_mnist(tmp_path) / MANIFEST_NAME)
    stated = load_ruleset().benchmark("fashion-mnist").dataset
    assert manifest.digest("train") == stated["train_digest"]
    assert manifest.digest("val") == stated["eval_digest"]
