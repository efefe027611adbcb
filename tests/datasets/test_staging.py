"""Staging: what is copied, and what is refused before anything starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from images import make_tree

from fourmin.base.errors import FourminError
from fourmin.datasets.check import check_shards, check_tree
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.prepare import prepare
from fourmin.datasets.staging import copy_dataset, left_behind, require_room_for_copy, staged_folder


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    root = make_tree(tmp_path_factory.mktemp("tree"), train=8, val=3, side=40)
    assert check_tree(root, workers=1).ok
    (root / "train/class0/notes.txt").write_text("not an image")
    (root / "mine").mkdir()
    return root


def listed(folder: Path) -> Manifest:
    return Manifest.load(folder / MANIFEST_NAME)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_copied_tree_is_clean_and_has_nothing_else(tree, tmp_path):
    copied = copy_dataset(tree, listed(tree), tmp_path / "s", threads=3)
    assert files(tmp_path / "s") == files(tree) - {"train/class0/notes.txt"}
    assert copied.files == 23
    assert copied.bytes == sum(path.stat().st_size for path in (tmp_path / "s").rglob("*.*"))
    assert check_tree(tmp_path / "s", workers=1).manifest == Manifest.load(tree / MANIFEST_NAME)


def test_copied_shards_pass_their_check(tree, tmp_path):
    prepare([tree], tmp_path / "shards", workers=1, shard_bytes=30_000)
    copy_dataset(tmp_path / "shards", listed(tree), tmp_path / "s", threads=2)
    assert files(tmp_path / "s") == files(tmp_path / "shards")
    assert check_shards(tmp_path / "s", workers=1).ok


def test_a_file_that_is_gone_ends_it_and_leaves_nothing(tree, tmp_path):
    copy = Path(shutil.copytree(tree, tmp_path / "tree"))
    victim = next((copy / "val/class1").iterdir())
    victim.unlink()
    with pytest.raises(FourminError, match="cannot copy") as caught:
        copy_dataset(copy, listed(copy), tmp_path / "s", threads=2)
    assert str(victim) in caught.value.why
    assert not (tmp_path / "s").exists()


def test_no_room_is_said_before_anything_starts(tree, tmp_path, monkeypatch):
    manifest = Manifest.load(tree / MANIFEST_NAME)
    require_room_for_copy(tmp_path, manifest)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1))
    with pytest.raises(FourminError, match="no room") as caught:
        require_room_for_copy(tmp_path, manifest)
    assert "--stage" in caught.value.next_step


def test_what_a_killed_run_of_the_campaign_left_makes_room(tree, tmp_path, monkeypatch):
    manifest, campaign = Manifest.load(tree / MANIFEST_NAME), "ab" * 32
    copy = staged_folder(tmp_path, campaign, 2)
    copy.mkdir()
    assert left_behind(tmp_path, campaign) == [copy]
    assert left_behind(tmp_path, "cd" * 32) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1))
    require_room_for_copy(tmp_path, manifest, campaign)
    with pytest.raises(FourminError, match="no room"):
        require_room_for_copy(tmp_path, manifest, "cd" * 32)
