"""Shards: WebDataset's format, the same bytes each time, resumed after a kill, all checked."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from output_kinds import require_kind
from PIL import Image
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.cli.data_command import app
from fourmin.datasets.check import check_shards, check_tree
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.prepare import prepare
from fourmin.datasets.shards import INDEX_NAME, ShardIndex, lay_out, member_header

SHARD = 40_000
"""Bytes of a shard in these tests: some ten samples each."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """Three classes, 20 and 5 images each, of JPEG and PNG, with names that tar and shells mind."""
    root = tmp_path_factory.mktemp("tree")
    random = np.random.default_rng(5)
    for split, count in (("train", 20), ("val", 5)):
        for name in ("ant", "bee.2", "über uns"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                kind = "PNG" if i % 4 == 0 else "JPEG"
                pixels = random.integers(0, 256, (20 + i, 31, 3), dtype=np.uint8)
                long = "x" * 150 if i == 3 else "a.b"
                Image.fromarray(pixels).save(folder / f"{long}{i}.{kind.lower()}", kind)
    assert check_tree(root, workers=1).ok
    return root


@pytest.fixture(scope="module")
def pristine(tree, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "s"
    prepare([tree], folder, shard_bytes=SHARD, workers=1)
    return folder


@pytest.fixture
def shards(pristine, tmp_path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(pristine, tmp_path / "shards"))


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def names_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.tar"))


def test_every_sample_is_there_as_webdataset_wants_it(tree, pristine):
    """Read by Python's tarfile: members of one sample stand together and share their key."""
    manifest = Manifest.load(tree / MANIFEST_NAME)
    assert len(names_of(pristine)) > 4
    for name in ("train", "val"):
        split, index = manifest.split(name), 0
        for shard in sorted(pristine.glob(f"{name}-*.tar")):
            with tarfile.open(shard) as archive:
                members = archive.getmembers()
                for label, image in zip(members[::2], members[1::2], strict=True):
                    key, _, kind = image.name.partition(".")
                    assert label.name == f"{key}.cls"
                    assert kind == ("png" if split.paths[index].endswith(".png") else "jpg")
                    text = archive.extractfile(label).read()
                    assert int(text) == split.labels[index]
                    data = archive.extractfile(image).read()
                    assert data == (tree / name / split.paths[index]).read_bytes()
                    assert (image.mtime, image.uid, image.gid, image.mode) == (0, 0, 0, 0o644)
                    index += 1
        assert index == len(split)


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar command")
def test_the_tar_command_lists_them(pristine):
    for shard in pristine.glob("*.tar"):
        done = subprocess.run(["tar", "tf", shard], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        with tarfile.open(shard) as archive:
            assert done.stdout.split() == archive.getnames()


def test_webdatasets_own_reader_takes_them(tree, pristine):
    webdataset = pytest.importorskip("webdataset", reason="the package webdataset is not here")
    split = Manifest.load(tree / MANIFEST_NAME).split("train")
    urls = [str(path) for path in sorted(pristine.glob("train-*.tar"))]
    found = list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False))
    assert [int(sample["__key__"].rpartition("/")[2]) for sample in found] == [*range(len(split))]
    assert [int(sample["cls"]) for sample in found] == [*split.labels]


def test_dalis_own_webdataset_reader_takes_them(tree, pristine):
    dali = pytest.importorskip("nvidia.dali", reason="DALI is not installed")
    split = Manifest.load(tree / MANIFEST_NAME).split("val")
    paths = [str(path) for path in sorted(pristine.glob("val-*.tar"))]

    @dali.pipeline_def(batch_size=len(split), num_threads=1, device_id=None)
    def pipeline():
        images, labels = dali.fn.readers.webdataset(
            paths=paths, ext=["jpg;png", "cls"], missing_component_behavior="error"
        )
        return images, labels

    built = pipeline()
    built.build()
    images, labels = built.run()
    for index in range(len(split)):
        data = images.at(index).tobytes()
        assert hashlib.sha256(data).hexdigest() == split.sha256(index)
        assert int(labels.at(index).tobytes()) == split.labels[index]


def test_headers_are_those_of_the_library():
    """All fields that have a meaning, by Python's tarfile, and its checksum."""
    info = tarfile.TarInfo.frombuf(member_header("000000007.jpg", 12345), "ascii", "strict")
    assert (info.name, info.size, info.type) == ("000000007.jpg", 12345, tarfile.REGTYPE)
    assert (info.uid, info.gid, info.mtime, info.uname, info.gname) == (0, 0, 0, "", "")


def test_offsets_point_at_the_images(tree, pristine):
    manifest = Manifest.load(tree / MANIFEST_NAME)
    index = ShardIndex.load(pristine, manifest)
    for shard in index.shards:
        split = manifest.split(shard.split)
        data = (pristine / shard.name).read_bytes()
        assert len(data) == shard.bytes <= SHARD
        for number in shard.indices():
            at = index.offsets[shard.split][number]
            digest = hashlib.sha256(data[at : at + split.sizes[number]]).hexdigest()
            assert digest == split.sha256(number)


def test_the_manifest_and_its_digests_are_the_trees(tree, pristine):
    assert (pristine / MANIFEST_NAME).read_bytes() == (tree / MANIFEST_NAME).read_bytes()


def test_processes_write_the_bytes_that_one_process_writes(tree, pristine, tmp_path):
    done = prepare([tree], tmp_path / "again", shard_bytes=SHARD, workers=2)
    assert contents(tmp_path / "again") == contents(pristine)
    assert (done.shards, done.kept, done.images) == (len(names_of(pristine)), 0, 75)


def test_a_sample_larger_than_a_shard_has_one_of_its_own(tree):
    manifest = Manifest.load(tree / MANIFEST_NAME)
    shards = lay_out(manifest, 1)
    assert [shard.samples for shard in shards] == [1] * 75
    assert len({shard.name for shard in shards}) == 75


def test_finished_shards_are_verified_and_kept(tree, shards):
    (shards / INDEX_NAME).unlink()
    (shards / MANIFEST_NAME).unlink()
    gone = names_of(shards)[1]
    (shards / gone).unlink()
    (shards / f".{gone}.abcdef").write_bytes(b"half")
    before = {name: (shards / name).stat().st_ino for name in names_of(shards)}
    done = prepare([tree], shards, shard_bytes=SHARD, workers=1)
    assert done.kept == done.shards - 1
    assert all((shards / name).stat().st_ino == inode for name, inode in before.items())
    assert sorted(contents(shards)) == sorted([*before, gone, INDEX_NAME, MANIFEST_NAME])


def test_a_finished_shard_that_changed_is_not_kept_nor_overwritten(tree, shards):
    victim = shards / names_of(shards)[2]
    data = bytearray(victim.read_bytes())
    data[-3000] ^= 1
    victim.write_bytes(data)
    with pytest.raises(FourminError, match="not what would be written") as caught:
        prepare([tree], shards, shard_bytes=SHARD, workers=1)
    assert str(victim) in caught.value.what
    assert "sample 0000000" in caught.value.why
    assert victim.read_bytes() == data


def test_shards_of_another_size_are_refused(tree, shards):
    with pytest.raises(FourminError, match="not a shard of this tree"):
        prepare([tree], shards, shard_bytes=10 * SHARD, workers=1)


def test_an_image_that_changed_since_the_check_is_named(tree, tmp_path):
    copy = tmp_path / "tree"
    shutil.copytree(tree, copy)
    victim = copy / "val/ant/a.b1.jpeg"
    data = bytearray(victim.read_bytes())
    data[-100] ^= 1
    victim.write_bytes(data)
    with pytest.raises(FourminError, match="has changed") as caught:
        prepare([copy], tmp_path / "shards", shard_bytes=SHARD, workers=2)
    assert str(victim) in caught.value.what
    assert not (tmp_path / "shards" / INDEX_NAME).exists()


def test_shards_are_made_from_a_tree_and_beside_it(tree, shards, tmp_path):
    with pytest.raises(FourminError, match="holds shards"):
        prepare([shards], tmp_path / "other")
    with pytest.raises(FourminError, match="holds a tree"):
        prepare([tree], tree)
    assert not list(tree.glob("*.tar"))


def test_shards_of_which_one_is_gone_are_not_finished_until_it_is_back(tree, shards, monkeypatch):
    (shards / names_of(shards)[0]).unlink()

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fourmin.datasets.shards.sync_folder", broken)
        with pytest.raises(FourminError, match="No space left"):
            prepare([tree], shards, shard_bytes=SHARD, workers=1)
    with pytest.raises(FourminError, match="not finished"):
        check_shards(shards)


def test_an_empty_folder_is_told_what_is_missing(tmp_path):
    with pytest.raises(FourminError, match=r"ILSVRC2012_img_train\.tar"):
        prepare([tmp_path], tmp_path / "shards")


def test_a_full_disk_is_noticed_before_writing(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1))
    with pytest.raises(FourminError, match="no room"):
        prepare([tree], tmp_path / "shards", workers=1)
    assert names_of(tmp_path / "shards") == []


def test_prepare_goes_on_after_a_kill(tree, pristine, tmp_path):
    """Killed as soon as a shard is finished; nothing half-written has a shard's name."""
    dest = tmp_path / "shards"
    code = (
        "import sys; from pathlib import Path; from fourmin.datasets import prepare as p; "
        "import time; write = p._write\n"
        "def slow(*a): write(*a); time.sleep(0.5)\n"
        "p._write = slow\n"
        f"p.prepare([Path(sys.argv[1])], Path(sys.argv[2]), shard_bytes={SHARD}, workers=1)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, tree, dest])
    deadline = time.monotonic() + 60
    while len(names_of(dest)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = names_of(dest)
    assert 2 <= len(finished) < len(names_of(pristine))
    with pytest.raises(FourminError, match="not finished") as caught:
        check_shards(dest)
    assert f"fourmin data prepare SOURCE {dest}" in caught.value.next_step
    done = prepare([tree], dest, shard_bytes=SHARD, workers=1)
    assert done.kept == len(finished)
    assert contents(dest) == contents(pristine)


# The check.


def test_clean_shards_pass_and_give_the_trees_report(tree, shards):
    calls = []
    report = check_shards(shards, workers=1, progress=lambda *numbers: calls.append(numbers))
    of_tree = check_tree(tree, workers=1)
    assert report.ok, report.problems
    assert report.manifest == of_tree.manifest
    assert (report.images, report.classes, report.shards) == (of_tree.images, 3, 8)
    assert calls[-1] == (75, 75)
    assert check_shards(shards, workers=2).manifest == report.manifest


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_any_corrupted_byte_is_named_with_its_sample_or_shard(tree, shards):
    """One byte of each part of a sample, then of the end of the archive."""
    manifest = Manifest.load(tree / MANIFEST_NAME)
    index = ShardIndex.load(shards, manifest)
    shard, split = index.shards[1], manifest.split("train")
    number = shard.first + 2
    offset, size = index.offsets["train"][number], split.sizes[number]
    path = shards / shard.name
    pristine = path.read_bytes()
    parts = {
        "its tar headers or its class": [offset - 1536, offset - 1024, offset - 512, offset - 1],
        "another SHA-256": [offset, offset + size // 2, offset + size - 1],
        "padding": [offset + size],
    }
    for reason, places in parts.items():
        for at in places:
            flip(path, at)
            (problem,) = check_shards(shards, workers=1).problems
            sample = f"{shard.name}, sample {number:09d} (train/{split.paths[number]})"
            assert problem.path == sample
            assert reason in problem.reason
            path.write_bytes(pristine)
    flip(path, len(pristine) - 1)
    (problem,) = check_shards(shards, workers=1).problems
    assert (problem.path, "does not end" in problem.reason) == (shard.name, True)
    path.write_bytes(pristine[:-600])
    (problem,) = check_shards(shards, workers=1).problems
    assert (problem.path, "bytes instead of" in problem.reason) == (shard.name, True)
    path.unlink()
    (problem,) = check_shards(shards, workers=1).problems
    assert problem.path == shard.name
    assert "No such file" in problem.reason


@pytest.mark.parametrize("damage", ["offset", "cut", "gone", "other", "name", "list"])
def test_an_index_that_cannot_be_used_is_refused(damage, tree, shards):
    path = shards / INDEX_NAME
    data = path.read_bytes()
    header, _, body = data.partition(b"\n")
    if damage == "offset":
        path.write_bytes(header + b"\n9" + body[1:])
    elif damage == "cut":
        path.write_bytes(data[:-20])
    elif damage == "gone":
        path.unlink()
    else:
        other = json.loads(header)
        if damage == "other":
            other["digests"]["val"] = "0" * 64
        elif damage == "name":
            other["shards"][0]["name"] = "../train-000000.tar"
        else:
            other = [other]
        path.write_bytes(json.dumps(other).encode() + b"\n" + body)
    with pytest.raises(FourminError, match=f"fourmin data prepare SOURCE {shards}"):
        check_shards(shards, workers=1)


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_commands_write_and_check(tree, tmp_path):
    result = run("prepare", tree, tmp_path / "s", "--workers", 1, "--json")
    assert result.exit_code == 0, result.output
    done = json.loads(result.stdout)
    require_kind(done, "data-prepare")
    assert (done["shards"], done["kept"], done["images"]) == (2, 0, 75)
    again = run("prepare", tree, tmp_path / "s", "--workers", 1)
    assert "2 shards (2 were there already), 75 images" in again.output
    result = run("check", tmp_path / "s", "--workers", 1, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["digests"] == {
        name: Manifest.load(tree / MANIFEST_NAME).digest(name) for name in ("train", "val")
    }
    flip(tmp_path / "s/val-000000.tar", 2000)
    result = run("check", tmp_path / "s", "--workers", 1)
    assert result.exit_code == 2
    assert "val-000000.tar, sample 000000000 (val/ant/" in result.output.replace("\n", "")


def test_shards_are_as_readable_as_other_files(pristine, tmp_path):
    (tmp_path / "file").touch()
    wanted = (tmp_path / "file").stat().st_mode
    assert {path.stat().st_mode for path in pristine.glob("*.tar")} == {wanted}
    assert os.access(pristine, os.R_OK)


def test_a_png_is_read_back(pristine):
    with tarfile.open(pristine / "val-000000.tar") as archive:
        image = next(member for member in archive if member.name.endswith(".png"))
        assert Image.open(io.BytesIO(archive.extractfile(image).read())).format == "PNG"
