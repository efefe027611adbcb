"""A small ImageNet in every form that people have it: prepared, it is that of the plain tree."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.cli.data_command import app
from fourmin.datasets.check import check_tree
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.prepare import prepare
from tests.support import forms

SHARD = 10_000
"""Bytes of a shard in these tests: a few samples each."""


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """Shards of the checked tree: what every form with the same bytes must give."""
    root = tmp_path_factory.mktemp("plain")
    (tree,) = forms.plain_tree(root / "tree")
    assert check_tree(tree, workers=1).ok
    prepare([tree], root / "shards", shard_bytes=SHARD, workers=1)
    return root / "shards"


@pytest.fixture(params=forms.FORMS, ids=lambda form: form.__name__)
def form(request) -> Callable[[Path], list[Path]]:
    if "parquet" in request.param.__name__:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return request.param


def test_every_form_gives_the_shards_of_the_plain_tree(form, plain, tmp_path):
    done = prepare(form(tmp_path / "source"), tmp_path / "out", shard_bytes=SHARD, workers=1)
    assert (done.images, done.kept) == (18, 0)
    manifest = Manifest.load(tmp_path / "out" / MANIFEST_NAME)
    assert manifest.class_names == forms.WNIDS
    assert manifest.pins == Manifest.load(plain / MANIFEST_NAME).pins
    if form is forms.nameless_parquet:
        assert manifest.about["order"] == "class and hash"
        assert any("ordered by class and SHA-256" in line for line in done.told)
    else:
        assert contents(tmp_path / "out") == contents(plain)


def test_the_pin_is_over_the_sorted_pairs_of_wnid_and_hash(plain):
    manifest = Manifest.load(plain / MANIFEST_NAME)
    for split in ("train", "val"):
        pairs = sorted((wnid, hashlib.sha256(d).hexdigest()) for wnid, _, d in forms.of(split))
        text = "".join(f"{wnid}\t{digest}\n" for wnid, digest in pairs)
        assert manifest.pins[split] == hashlib.sha256(text.encode()).hexdigest()


def test_nameless_images_are_ordered_by_class_and_hash(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    sources = forms.nameless_parquet(tmp_path / "source")
    prepare(sources, tmp_path / "out", workers=1)
    split = Manifest.load(tmp_path / "out" / MANIFEST_NAME).split("train")
    pairs = sorted((wnid, hashlib.sha256(d).hexdigest()) for wnid, _, d in forms.of("train"))
    assert [(path.split("/")[0], path.split("/")[1][:64]) for path in split.paths] == pairs
    kinds = {path[-4:] for path in split.paths}
    assert kinds == {".jpg", ".png"}


def test_a_tree_is_written_where_it_is_asked_for(tmp_path):
    sources = forms.official_archives(tmp_path / "source")
    done = prepare(sources, tmp_path / "out", tree=True, workers=1)
    assert done.shards == 0
    for split, wnid, name, data in forms.IMAGES:
        assert (tmp_path / "out" / split / wnid / name).read_bytes() == data
    before = (tmp_path / "out" / MANIFEST_NAME).read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        MANIFEST_NAME, "train", "val",
    ]  # fmt: skip
    assert check_tree(tmp_path / "out", workers=1).ok
    assert (tmp_path / "out" / MANIFEST_NAME).read_bytes() == before


def run(*arguments: object):
    return CliRunner().invoke(app, ["prepare", *map(str, arguments)])


def test_the_command_says_what_it_recognised(tmp_path):
    result = run(*forms.official_archives(tmp_path / "source"), tmp_path / "out", "--workers", 1)
    assert result.exit_code == 0, result.output
    for part in ("ILSVRC2012_img_train.tar", "12 training", "6 validation", "meta.mat",
                 "1 images are CMYK", "18 images"):  # fmt: skip
        assert part in result.output


def cut(path: Path, keep: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def without_a_class_tar(root: Path) -> list[Path]:
    sources = forms.official_archives(root)
    tars = forms.class_tars()
    del tars["n01443537.tar"]
    sources[0].write_bytes(forms.tar_of(tars))
    return sources


def devkit_of_another_year(root: Path) -> list[Path]:
    return [*forms.official_archives(root)[:2], forms.devkit(root, year="2010")]


def devkit_of_other_images(root: Path) -> list[Path]:
    sources = forms.official_archives(root)
    val = forms.flat_val()
    val.popitem()
    sources[1].write_bytes(forms.tar_of(val))
    return sources


def without_labels(root: Path) -> list[Path]:
    return forms.official_archives(root)[:2]


def without_validation(root: Path) -> list[Path]:
    train, _, devkit = forms.official_archives(root)
    return [train, devkit]


def without_training(root: Path) -> list[Path]:
    return forms.official_archives(root)[1:]


def truncated_train_tar(root: Path) -> list[Path]:
    sources = forms.official_archives(root)
    cut(sources[0], 0.6)
    return sources


def truncated_at_a_member(root: Path) -> list[Path]:
    """Cut where a member ends: only the end of the archive is missing."""
    sources = forms.official_archives(root)
    sources[1].write_bytes(sources[1].read_bytes().rstrip(b"\0")[:512])
    data = forms.tar_of(forms.flat_val())
    sources[1].write_bytes(data[: len(data.rstrip(b"\0")) // 512 * 512 + 512])
    return sources


def gzip_under_the_name_of_tar(root: Path) -> list[Path]:
    sources = forms.official_archives(root)
    sources[0].write_bytes(gzip.compress(sources[0].read_bytes()))
    return sources


def a_page_instead_of_an_archive(root: Path) -> list[Path]:
    sources = forms.official_archives(root)
    sources[0].write_bytes(b"<html>403 Forbidden</html>" * 40)
    return sources


def truncated_devkit(root: Path) -> list[Path]:
    sources = forms.official_archives(root)
    cut(sources[2], 0.5)
    return sources


def truncated_parquet(root: Path) -> list[Path]:
    forms.parquet(root)
    cut(root / "train-00001-of-00002.parquet", 0.5)
    return [root]


def parquet_without_labels(root: Path) -> list[Path]:
    import pyarrow as pa
    from pyarrow import parquet as pq

    root.mkdir()
    pq.write_table(pa.table({"image": [b"x"], "width": [3]}), root / "train.parquet")
    return [root]


def truncated_tfrecord(root: Path) -> list[Path]:
    forms.tfrecord(root)
    cut(root / "train-00001-of-00002", 0.9)
    return [root]


def packed_tfrecord(root: Path) -> list[Path]:
    forms.tfrecord(root)
    path = root / "train-00001-of-00002"
    path.write_bytes(gzip.compress(path.read_bytes()))
    return [root]


def truncated_gzip(root: Path) -> list[Path]:
    (source,) = forms.one_tar_gz(root)
    cut(source, 0.5)
    return [source]


def truncated_webdataset(root: Path) -> list[Path]:
    forms.webdataset(root)
    cut(root / "imagenet1k-train-0001.tar", 0.5)
    return [root]


def a_truncated_image(root: Path) -> list[Path]:
    forms.plain_tree(root)
    cut(next((root / "train").rglob("*.JPEG")), 0.5)
    return [root]


def webp_images(root: Path) -> list[Path]:
    forms.plain_tree(root)
    forms.put(root, "train", forms.WNIDS[0], "a.webp", data=b"RIFF")
    return [root]


def the_archive_beside_what_it_held(root: Path) -> list[Path]:
    forms.plain_tree(root / "tree")
    return [root / "tree", *forms.official_archives(root)]


def nothing_there(root: Path) -> list[Path]:
    return [root / "nothing"]


def no_images(root: Path) -> list[Path]:
    forms.put(root, "readme.md", data="hello")
    return [root]


def a_file_of_no_form(root: Path) -> list[Path]:
    return [forms.put(root, "imagenet.h5", data="hello")]


WRONG = {
    without_a_class_tar: ("n01443537", "n01443537.tar", "ILSVRC2012_img_train.tar"),
    devkit_of_another_year: ("another year", "2010", "ILSVRC2012_devkit_t12.tar.gz"),
    devkit_of_other_images: ("6 labels for 5 images", "ILSVRC2012_devkit_t12.tar.gz"),
    without_labels: ("6 images have no label", "recognised:", "ILSVRC2012_devkit_t12.tar.gz"),
    without_validation: ("no validation images", "12 training", "ILSVRC2012_img_val.tar"),
    without_training: ("no training images", "6 validation", "ILSVRC2012_img_train.tar"),
    truncated_train_tar: ("ILSVRC2012_img_train.tar", "cut short", "fetch it again"),
    truncated_at_a_member: ("ILSVRC2012_img_val.tar", "cut short", "fetch it again"),
    gzip_under_the_name_of_tar: ("ILSVRC2012_img_train.tar", "gzip", "unpack it"),
    a_page_instead_of_an_archive: ("ILSVRC2012_img_train.tar", "damaged", "fetch it again"),
    truncated_devkit: ("ILSVRC2012_devkit_t12.tar.gz", "damaged", "fetch it again"),
    truncated_parquet: ("train-00001-of-00002.parquet", "damaged", "fetch it again"),
    parquet_without_labels: ("without labels", "image, width", "label"),
    truncated_tfrecord: ("train-00001-of-00002", "cut short", "fetch it again"),
    packed_tfrecord: ("train-00001-of-00002", "does not begin as one", "fetch it again"),
    truncated_gzip: ("imagenet.tar.gz", "damaged", "fetch it again"),
    truncated_webdataset: ("imagenet1k-train-0001.tar", "damaged", "fetch it again"),
    a_truncated_image: ("1 images cannot be taken", "truncated", "run the same command"),
    webp_images: ("no loader here decodes", "a.webp", "original"),
    the_archive_beside_what_it_held: ("comes twice", "ILSVRC2012_img_train.tar", "once"),
    nothing_there: ("nothing", "no such file", "name"),
    no_images: ("no training images", "recognised: no images", "train"),
    a_file_of_no_form: ("imagenet.h5", "no form", "parquet"),
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_what_is_wrong_is_said_with_what_why_and_next(wrong, tmp_path):
    if "parquet" in wrong.__name__:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with pytest.raises(FourminError) as caught:
        prepare(wrong(tmp_path / "source"), tmp_path / "out", workers=1)
    assert caught.value.exit_code == 2
    assert caught.value.what
    assert caught.value.why
    assert caught.value.next_step
    for part in WRONG[wrong]:
        assert part in str(caught.value)
    assert len(str(caught.value)) < 1500
    assert not (tmp_path / "out" / MANIFEST_NAME).exists()


def test_what_was_mended_is_read_and_the_rest_is_kept(plain, tmp_path):
    (tree,) = forms.plain_tree(tmp_path / "source")
    victim = tree / "train" / forms.WNIDS[0] / f"{forms.WNIDS[0]}_2933.JPEG"
    whole = victim.read_bytes()
    cut(victim, 0.5)
    with pytest.raises(FourminError, match="run the same command"):
        prepare([tree], tmp_path / "out", shard_bytes=SHARD, workers=1)
    victim.write_bytes(whole)
    read: list[tuple[int, int]] = []
    prepare(
        [tree], tmp_path / "out", shard_bytes=SHARD, workers=1,
        stage=lambda doing: lambda *n: read.append(n) if doing == "reading" else None,
    )  # fmt: skip
    assert read == [(18, 18)]
    assert contents(tmp_path / "out") == contents(plain)
    shutil.rmtree(tmp_path / "out")
