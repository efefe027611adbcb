"""A small ImageNet in every form that people have it: prepared, it is that of the plain tree."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.cli.data_command import app
from fourmin.datasets.catalogue import Equal, too_many_in_both
from fourmin.datasets.check import check_tree
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.prepare import prepare
from fourmin.datasets.report import Known, compare_with_benchmark
from fourmin.ruleset import load_ruleset
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


def a_damaged_devkit_of_xz(root: Path) -> list[Path]:
    sources = forms.official_archives(root)
    with tarfile.open(sources[2], "w:xz") as archive:
        forms.put(root, "readme.txt", data=os.urandom(200_000).hex())
        archive.add(root / "readme.txt", "readme.txt")
    data = bytearray(sources[2].read_bytes())
    data[len(data) // 2] ^= 0xFF
    sources[2].write_bytes(data)
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
    a_damaged_devkit_of_xz: ("ILSVRC2012_devkit_t12.tar.gz", "damaged", "fetch it again"),
    truncated_parquet: ("train-00001-of-00002.parquet", "damaged", "fetch it again"),
    parquet_without_labels: ("without labels", "image, width", "label"),
    truncated_tfrecord: ("train-00001-of-00002", "cut short", "fetch it again"),
    packed_tfrecord: ("train-00001-of-00002", "no TFRecord file", "fetch it again"),
    truncated_gzip: ("imagenet.tar.gz", "damaged", "fetch it again"),
    truncated_webdataset: ("imagenet1k-train-0001.tar", "damaged", "fetch it again"),
    a_truncated_image: ("1 images cannot be taken", "truncated", "run the same command"),
    webp_images: ("no loader here decodes", "a.webp", "original"),
    the_archive_beside_what_it_held: ("comes twice", "ILSVRC2012_img_train.tar", "once"),
    nothing_there: ("nothing", "no such file", "name"),
    no_images: ("no training images", "recognised: ", "readme.md", "train"),
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
    if wrong is nothing_there:
        assert not (tmp_path / "out").exists()
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


KILLED = """
import os, signal, sys
from pathlib import Path
from fourmin.datasets import check
from fourmin.datasets.prepare import prepare
from fourmin.datasets.report import Known, compare_with_benchmark
from fourmin.ruleset import load_ruleset
doing, at, tree, *paths = sys.argv[1:]
check._CHUNK = 4
def stage(name):
    return lambda n, _: name == doing and n >= int(at) and os.kill(os.getpid(), signal.SIGKILL)
*sources, dest = map(Path, paths)
prepare(sources, dest, tree=bool(tree), shard_bytes=10_000, workers=1, stage=stage)
"""


@pytest.mark.parametrize(("doing", "at"), [("reading", 8), ("writing", 3)])
def test_a_kill_and_a_second_call_give_the_same_bytes(plain, tmp_path, doing, at):
    sources, out = forms.one_tar_gz(tmp_path / "source"), tmp_path / "out"
    command = [sys.executable, "-c", KILLED, doing, str(at), "", *map(str, sources), str(out)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not (out / MANIFEST_NAME).exists()
    (unpacked,) = (out / ".fourmin-prepare").glob("*.tar")
    before = unpacked.stat().st_mtime_ns
    read: list[int] = []
    done = prepare(
        sources, out, shard_bytes=SHARD, workers=1,
        stage=lambda doing: lambda n, _: read.append(n) if doing == "reading" else (
            # What was unpacked is not unpacked again.
            unpacked.stat().st_mtime_ns == before or pytest.fail("unpacked anew")
        ) if doing == "unpacking" else None,
    )  # fmt: skip
    # Nothing that was read before the kill is read again: only the rest, if any.
    assert read == ([18] if doing == "reading" else [])
    assert done.kept == (0 if doing == "reading" else 1)
    assert contents(out) == contents(plain)


def test_a_tree_goes_on_after_a_kill(tmp_path):
    sources, out = forms.official_archives(tmp_path / "source"), tmp_path / "out"
    command = [sys.executable, "-c", KILLED, "writing", "12", "tree", *map(str, sources), str(out)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    done = prepare(sources, out, tree=True, workers=1)
    assert done.kept == 12
    for split, wnid, name, data in forms.IMAGES:
        assert (out / split / wnid / name).read_bytes() == data


def test_another_set_in_the_folder_is_refused_and_nothing_is_overwritten(plain, tmp_path):
    sources, out = forms.kaggle(tmp_path / "source"), tmp_path / "out"
    shutil.copytree(plain, out)
    (out / "train-000000.tar").write_bytes(b"mine")
    with pytest.raises(FourminError, match="not what would be written"):
        prepare(sources, out, shard_bytes=SHARD, workers=1)
    assert (out / "train-000000.tar").read_bytes() == b"mine"
    with pytest.raises(FourminError, match="holds shards"):
        prepare(sources, out, tree=True, workers=1)


def imagenet() -> dict[str, Any]:
    return dict(load_ruleset().benchmark("resnet50").dataset)


def test_one_image_that_was_encoded_anew_is_told_and_refused_where_it_counts(tmp_path, monkeypatch):
    """TFRecords are known to hold the PNG as a JPEG."""
    victim = next(one for one in forms.IMAGES if one[2] == "n02105855_2933.JPEG")
    others = [one if one is not victim else (*victim[:3], forms.jpeg(7)) for one in forms.IMAGES]
    monkeypatch.setattr(forms, "IMAGES", others)
    result = run(*forms.tfrecord(tmp_path / "source"), tmp_path / "out", "--workers", 1)
    assert result.exit_code == 0, result.output
    said = "not the original file: n02105855/n02105855_2933.JPEG is PNG in the original"
    assert said in " ".join(result.output.split())
    manifest = Manifest.load(tmp_path / "out" / MANIFEST_NAME)
    assert said in compare_with_benchmark(manifest, imagenet())
    checked = CliRunner().invoke(app, ["check", str(tmp_path / "out"), "--benchmark", "resnet50"])
    assert checked.exit_code == 2
    assert said in " ".join(checked.output.split())


def test_a_set_with_the_original_images_is_compared_by_its_counts(plain):
    manifest = Manifest.load(plain / MANIFEST_NAME)
    assert compare_with_benchmark(manifest, imagenet()) == [
        "3 classes, the benchmark has 1,000",
        "12 training images, the benchmark has 1,281,167",
        "6 validation images, the benchmark has 50,000",
    ]


def test_resized_images_are_not_those_of_the_archive(plain, tmp_path):
    """As many images as the official archive has, and other bytes in all."""
    manifest = Manifest.load(plain / MANIFEST_NAME)
    _, val, _ = forms.official_archives(tmp_path)
    size = sum(len(data) + 768 for *_, data in forms.of("val"))
    assert abs(size - val.stat().st_size) < 12_000
    expected = {"eval_samples": 6, "archives": {"v": {"split": "val", "bytes": size}}}
    assert compare_with_benchmark(manifest, expected) == []
    expected["archives"]["v"]["bytes"] = int(size * 1.02)
    (said,) = compare_with_benchmark(manifest, expected)
    assert "resized or encoded anew" in said


def test_a_pin_in_the_ruleset_is_compared_instead_of_the_digest(plain):
    manifest = Manifest.load(plain / MANIFEST_NAME)
    expected = {"train_digest": "0" * 64, "train_pin": manifest.pins["train"]}
    assert compare_with_benchmark(manifest, expected) == []
    expected["train_pin"] = "1" * 64
    assert ["pin" in one for one in compare_with_benchmark(manifest, expected)] == [True]


def with_archives(sources: list[Path]) -> Known:
    archives = {
        path.name: {
            "split": split,
            "md5": hashlib.md5(path.read_bytes()).hexdigest(),
            **({"bytes": path.stat().st_size} if split else {}),
        }
        for path, split in zip(sources, ("train", "val", None), strict=True)
    }
    return Known({}, [{**imagenet(), "archives": archives}])


def test_a_manifest_claims_the_official_archives_where_it_was_made_from_them(tmp_path):
    sources = forms.official_archives(tmp_path / "source")
    prepare(sources, tmp_path / "out", workers=1, known=with_archives(sources))
    manifest = Manifest.load(tmp_path / "out" / MANIFEST_NAME)
    assert manifest.about["claims"] == "the official archives"
    shown = CliRunner().invoke(app, ["check", str(tmp_path / "out"), "--workers", "1"]).output
    assert "the official archives" in shown
    assert manifest.pins["train"] in "".join(shown.split())


def test_archives_of_other_bytes_claim_nothing(tmp_path):
    sources = forms.official_archives(tmp_path / "source")
    known = with_archives(sources)
    forms.devkit(tmp_path / "source", year="2012")
    sources[2].write_bytes(gzip.compress(gzip.decompress(sources[2].read_bytes()), mtime=5))
    done = prepare(sources, tmp_path / "out", workers=1, known=known)
    assert "claims" not in Manifest.load(tmp_path / "out" / MANIFEST_NAME).about
    assert any("devkit_t12.tar.gz is not the official archive" in line for line in done.told)
    data = bytearray(sources[1].read_bytes())
    data[-1] ^= 1
    sources[1].write_bytes(data)
    with pytest.raises(FourminError, match="its MD5 is"):
        prepare(sources, tmp_path / "other", workers=1, known=known)


def equal(count: int) -> list[Equal]:
    return [Equal(f"{n:064x}", f"a/{n}.jpg", f"b/{n}.jpg") for n in range(count)]


def test_images_in_both_splits_block_where_something_is_known_or_they_are_many():
    """ImageNet is known to hold some, and nothing lists them: up to 1% of 50,000 pass."""
    assert too_many_in_both(equal(500), 50_000, {}) == []
    assert too_many_in_both(equal(500), 50_000, imagenet()) == []
    assert len(too_many_in_both(equal(501), 50_000, imagenet())) == 501
    for pinned in ({"train_pin": "0" * 64}, {"eval_digest": "0" * 64}, {"in_both_splits": []}):
        assert too_many_in_both(equal(1), 50_000, pinned) == equal(1)
    listed = {"eval_digest": "0" * 64, "in_both_splits": [f"{0:064x}"]}
    assert too_many_in_both(equal(2), 50_000, listed) == equal(2)[1:]


def test_images_in_both_splits_are_counted_and_named_in_the_manifest(tmp_path):
    root = tmp_path / "tree"
    for n in range(100):
        forms.put(root, "val", "a", f"{n}.jpg", data=forms.jpeg(n))
    forms.put(root, "train", "a", "x.jpg", data=forms.jpeg(3))
    report = check_tree(root, workers=1)
    assert report.ok
    assert [note.count for note in report.notes.values()] == [1]
    (named,) = Manifest.load(root / MANIFEST_NAME).about["in_both_splits"]
    digest = hashlib.sha256(forms.jpeg(3)).hexdigest()
    assert named == {"sha256": digest, "train": "a/x.jpg", "val": "a/3.jpg"}


def cifar(root: Path, name: str, batch: Callable[[list[int], np.ndarray], bytes], end: str) -> Path:
    random = np.random.default_rng(3)
    files = {}
    for one in ("data_batch_1", "data_batch_2", "test_batch"):
        pixels = random.integers(0, 256, (20, 3072), dtype=np.uint8)
        files[f"{name}/{one}{end}"] = batch([n % 10 for n in range(20)], pixels)
    files[f"{name}/batches.meta"] = b"names"
    return forms.put(root, f"{name}.tar.gz", data=gzip.compress(forms.tar_of(files)))


def test_both_archives_of_cifar_10_give_the_same_pngs_with_its_pixels(tmp_path):
    python = cifar(
        tmp_path, "cifar-10-batches-py",
        lambda labels, data: pickle.dumps({b"labels": labels, b"data": data}, protocol=2), "",
    )  # fmt: skip
    binary = cifar(
        tmp_path, "cifar-10-batches-bin",
        lambda labels, data: b"".join(
            bytes([one, *row]) for one, row in zip(labels, data, strict=True)
        ), ".bin",
    )  # fmt: skip
    for source in (python, binary):
        prepare([source], tmp_path / source.stem, tree=True, workers=1)
    first, second = (tmp_path / source.stem for source in (python, binary))
    assert contents(first) == contents(second)
    pixels = np.random.default_rng(3).integers(0, 256, (20, 3072), dtype=np.uint8)[7]
    with Image.open(first / "train" / "horse" / "00007.png") as image:
        assert (np.asarray(image) == pixels.reshape(3, 32, 32).transpose(1, 2, 0)).all()


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    source = cifar(tmp_path, "cifar-10-batches-py", lambda *_: pickle.dumps(Evil()), "")
    with pytest.raises(FourminError, match=r"posix\.system|os\.system|nt\.system"):
        prepare([source], tmp_path / "out", workers=1)
    assert not (tmp_path / "ran").exists()


def test_tiny_imagenets_archive(tmp_path):
    top = "tiny-imagenet-200"
    files = {f"{top}/train/{w}/images/{n}": d for w, n, d in forms.of("train")}
    files |= {f"{top}/val/images/val_{i}.JPEG": d for i, (*_, d) in enumerate(forms.of("val"))}
    files[f"{top}/test/images/test_0.JPEG"] = forms.jpeg(900)
    annotations = [
        f"val_{i}.JPEG\t{w}\t0\t0\t62\t62\n" for i, (w, *_) in enumerate(forms.of("val"))
    ]
    files[f"{top}/val/val_annotations.txt"] = "".join(annotations).encode()
    with zipfile.ZipFile(tmp_path / f"{top}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    done = prepare([tmp_path / f"{top}.zip"], tmp_path / "out", workers=1)
    assert done.images == 18
    manifest = Manifest.load(tmp_path / "out" / MANIFEST_NAME)
    pairs = sorted((w, hashlib.sha256(d).hexdigest()) for w, _, d in forms.of("val"))
    text = "".join(f"{wnid}\t{digest}\n" for wnid, digest in pairs)
    assert manifest.pins["val"] == hashlib.sha256(text.encode()).hexdigest()


def test_a_folder_that_may_not_be_listed_and_a_link_to_nothing_are_named(tmp_path, monkeypatch):
    (tree,) = forms.plain_tree(tmp_path / "tree")
    link = tree / "train" / forms.WNIDS[0] / "z.jpg"
    link.symlink_to("nowhere")
    with pytest.raises(FourminError, match=r"cannot read .*z\.jpg"):
        prepare([tree], tmp_path / "out", workers=1)
    link.unlink()
    real = os.scandir

    def scandir(path):
        if str(path).endswith(forms.WNIDS[1]):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(FourminError, match="Permission denied") as caught:
        prepare([tree], tmp_path / "out", workers=1)
    assert forms.WNIDS[1] in caught.value.what
    assert "chmod" in caught.value.next_step


def test_what_is_left_out_is_counted_and_named(tmp_path):
    forms.plain_tree(tmp_path / "tree")
    forms.put(tmp_path, "tree", "train", forms.WNIDS[0], "notes.doc", data="x")
    done = prepare([tmp_path / "tree"], tmp_path / "out", workers=1)
    assert any("1 other files" in line and "notes.doc" in line for line in done.told)
