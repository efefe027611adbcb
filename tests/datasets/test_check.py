"""The check of a tree: each fault is found by name, and a clean tree gets its manifest."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from output_kinds import require_kind
from PIL import Image
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.cli.data_command import app
from fourmin.datasets.check import check_tree
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.report import Known, compare_with_benchmark


def image_bytes(seed: int, kind: str = "JPEG", mode: str = "RGB", **options) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 31, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, kind, **options)
    return out.getvalue()


@pytest.fixture
def tree(tmp_path) -> Path:
    """Two classes with three training and two validation images each, and no fault."""
    number = 0
    for split, count in (("train", 3), ("val", 2)):
        for name in ("ant", "bee"):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                number += 1
                (folder / f"{i}.JPEG").write_bytes(image_bytes(number))
    return tmp_path


def only_problem(tree: Path) -> tuple[str, str]:
    report = check_tree(tree, workers=1)
    assert not report.ok
    assert report.manifest is None
    assert not (tree / MANIFEST_NAME).exists()
    assert len(report.problems) == 1, report.problems
    return report.problems[0].path, report.problems[0].reason


def only_note(tree: Path) -> tuple[str, int, list[str]]:
    report = check_tree(tree, workers=1)
    assert report.ok, report.problems
    (note,) = report.notes.values()
    return note.text, note.count, note.examples


def test_a_clean_tree_gets_its_manifest(tree):
    calls = []
    report = check_tree(tree, workers=1, progress=lambda *numbers: calls.append(numbers))
    assert report.ok
    assert not report.notes
    assert (report.images, report.classes) == ({"train": 6, "val": 4}, 2)
    assert calls[-1] == (10, 10)
    manifest = Manifest.load(tree / MANIFEST_NAME)
    assert manifest == report.manifest
    split = manifest.split("train")
    assert (split.widths[0], split.heights[0]) == (31, 24)
    assert split.sizes[0] == (tree / "train/ant/0.JPEG").stat().st_size
    assert report.total_bytes == sum(path.stat().st_size for path in tree.rglob("*.JPEG"))


def test_processes_find_what_one_process_finds(tree):
    for i in range(400):
        (tree / "train/ant" / f"more{i}.jpg").write_bytes(image_bytes(1000 + i))
    alone = check_tree(tree, workers=1).manifest
    assert check_tree(tree, workers=2).manifest == alone
    (tree / "train/ant/more399.jpg").write_bytes(b"")
    assert [p.path for p in check_tree(tree, workers=2).problems] == ["train/ant/more399.jpg"]


def test_a_missing_split(tree):
    os.rename(tree / "val", tree / "validation")
    assert only_problem(tree) == ("val", "the folder is missing")


def test_no_folder_at_all(tmp_path):
    with pytest.raises(FourminError, match="contains train and val"):
        check_tree(tmp_path / "nothing")


def test_empty_splits(tmp_path):
    for name in ("train", "val"):
        (tmp_path / name).mkdir()
    assert only_problem(tmp_path) == (".", "there is no class folder in train and val")


def test_an_empty_class(tree):
    for path in (tree / "val/bee").iterdir():
        path.unlink()
    assert only_problem(tree) == ("val/bee", "the class has no image")


def test_classes_that_differ(tree):
    os.rename(tree / "val/bee", tree / "val/wasp")
    report = check_tree(tree, workers=1)
    assert [(p.path, p.reason) for p in report.problems] == [
        ("train/wasp", "the class is in val but not in train"),
        ("val/bee", "the class is in train but not in val"),
    ]


def test_an_empty_file(tree):
    (tree / "val/bee/0.JPEG").write_bytes(b"")
    assert only_problem(tree) == ("val/bee/0.JPEG", "the file is empty")


def test_a_truncated_jpeg(tree):
    victim = tree / "train/bee/1.JPEG"
    victim.write_bytes(victim.read_bytes()[:-200])
    path, reason = only_problem(tree)
    assert (path, "truncated" in reason) == ("train/bee/1.JPEG", True)


def test_a_truncated_png(tree):
    (tree / "train/bee/1.png").write_bytes(image_bytes(50, "PNG")[:-300])
    assert only_problem(tree)[0] == "train/bee/1.png"


@pytest.mark.parametrize("data", [b"hello", b"\xff\xd8\xff", image_bytes(1, "GIF", "P")])
def test_a_file_that_is_no_image(tree, data):
    (tree / "train/bee/1.JPEG").write_bytes(data)
    assert only_problem(tree) == (
        "train/bee/1.JPEG",
        "is neither a JPEG nor a PNG by content",
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read any file")
def test_an_unreadable_file(tree):
    (tree / "train/bee/1.JPEG").chmod(0)
    assert "cannot be read" in only_problem(tree)[1]


def test_png_under_a_jpeg_name_and_the_reverse(tree):
    (tree / "train/bee/1.JPEG").write_bytes(image_bytes(50, "PNG"))
    assert only_note(tree) == (
        "are PNG by content under a JPEG name", 1, ["train/bee/1.JPEG"],
    )  # fmt: skip
    (tree / "train/bee/1.JPEG").rename(tree / "train/bee/1.png")
    assert not check_tree(tree, workers=1).notes
    (tree / "train/bee/1.png").write_bytes(image_bytes(50))
    assert only_note(tree)[0] == "are JPEG by content under a PNG name"


@pytest.mark.parametrize(("mode", "word"), [("CMYK", "CMYK"), ("L", "grey")])
def test_cmyk_and_grey(tree, mode, word):
    for i in range(7):
        (tree / f"train/bee/m{i}.jpg").write_bytes(image_bytes(60 + i, mode=mode))
    text, count, examples = only_note(tree)
    assert word in text
    assert (count, examples) == (7, [f"train/bee/m{i}.jpg" for i in range(5)])


def test_exif_orientation_is_noted(tree):
    exif = Image.Exif()
    exif[0x0112] = 6
    (tree / "train/bee/1.JPEG").write_bytes(image_bytes(70, exif=exif))
    assert "EXIF" in only_note(tree)[0]
    split = check_tree(tree, workers=1).manifest.split("train")
    at = split.paths.index("bee/1.JPEG")
    assert (split.widths[at], split.heights[at]) == (31, 24)


def test_a_file_in_both_splits_unless_the_benchmark_lists_it(tree):
    data = (tree / "train/ant/0.JPEG").read_bytes()
    (tree / "val/ant/1.JPEG").write_bytes(data)
    assert only_problem(tree) == ("val/ant/1.JPEG", "has the same content as train/ant/0.JPEG")
    known = Known({"in_both_splits": [hashlib.sha256(data).hexdigest()]})
    listed = check_tree(tree, workers=1, known=known)
    assert listed.ok
    assert [note.count for note in listed.notes.values()] == [1]


def test_duplicates_within_a_split_are_noted(tree):
    (tree / "train/bee/7.jpg").write_bytes((tree / "train/ant/0.JPEG").read_bytes())
    assert only_note(tree) == (
        "have the same content as another image of their split", 1, ["train/bee/7.jpg"],
    )  # fmt: skip


@pytest.mark.parametrize("where", ["train/bee/out.jpg", "train/wasp", "val"])
def test_a_link_that_leaves_the_tree(tree, where, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.jpg").write_bytes(image_bytes(80))
    link = tree / where
    if where == "val":
        os.rename(link, outside / "val")
        link.symlink_to(outside / "val")
    else:
        link.symlink_to(outside / "a.jpg" if where.endswith("jpg") else outside)
    assert only_problem(tree) == (where, "a symbolic link that leaves the tree")


def test_a_link_to_nothing_and_a_link_within(tree):
    (tree / "train/bee/x.jpg").symlink_to("0.JPEG")
    assert "same content" in only_note(tree)[0]
    (tree / MANIFEST_NAME).unlink()
    (tree / "train/bee/y.jpg").symlink_to("nowhere.jpg")
    assert only_problem(tree)[0] == "train/bee/y.jpg"


def test_other_files_are_ignored_but_counted(tree):
    (tree / "train/readme.txt").write_bytes(b"x")
    (tree / "train/bee/notes.txt").write_bytes(b"x")
    (tree / "train/bee/._0.JPEG").write_bytes(b"x")
    (tree / "train/bee/deep.jpg").mkdir()
    text, count, _ = only_note(tree)
    assert (count, "ignored" in text) == (4, True)


def test_a_name_with_a_tab_or_bad_utf8_is_refused_and_printable(tree):
    (tree / "train/bee/a\tb.jpg").write_bytes(image_bytes(90))
    assert only_problem(tree) == (
        "train/bee/a\\tb.jpg",
        "the name has a tab, a line break or a NUL in it",
    )
    (tree / "train/bee/a\tb.jpg").unlink()
    with open(os.fsencode(tree) + b"/train/bee/\xff\x1b[31m.jpg", "wb") as file:
        file.write(image_bytes(91))
    path, reason = only_problem(tree)
    assert (path, reason) == ("train/bee/\\udcff\\x1b[31m.jpg", "the name is not valid UTF-8")


def test_comparison_with_a_benchmark_is_in_plain_words(tree):
    manifest = check_tree(tree, workers=1).manifest
    same = {
        "classes": 2,
        "train_samples": 6,
        "eval_samples": 4,
        "train_digest": manifest.digest("train"),
        "eval_digest": None,
    }
    assert compare_with_benchmark(manifest, same) == []
    assert compare_with_benchmark(manifest, {}) == []
    other = {"classes": 1000, "train_samples": 1_281_167, "eval_samples": 5, "eval_digest": "ab"}
    assert compare_with_benchmark(manifest, other) == [
        "2 classes, the benchmark has 1,000",
        "6 training images, the benchmark has 1,281,167",
        "4 validation images, the benchmark has 5",
        f"the validation images have the digest {manifest.digest('val')}, the benchmark's is ab",
    ]


def run(*arguments: object):
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


def test_command_on_a_clean_tree(tree):
    result = run(tree, "--workers", 1)
    assert result.exit_code == 0
    assert "The tree is clean." in result.output
    assert "train digest" in result.output


def test_command_names_at_most_twenty_files(tree):
    for i in range(25):
        (tree / f"train/bee/e{i:02d}.jpg").write_bytes(b"")
    result = run(tree, "--workers", 1)
    assert result.exit_code == 2
    assert "25 problems" in result.output
    assert "train/bee/e19.jpg: the file is empty" in result.output
    assert "e20.jpg" not in result.output
    assert "and 5 more" in result.output


def test_command_in_json_has_every_problem(tree):
    for i in range(25):
        (tree / f"train/bee/e{i:02d}.jpg").write_bytes(b"")
    result = run(tree, "--workers", 1, "--json")
    report = json.loads(result.stdout)
    require_kind(report, "data-check")
    assert result.exit_code == 2
    assert len(report["problems"]) == 25
    assert (report["ok"], report["manifest"], report["images"]["val"]) == (False, None, 4)


def test_command_compares_with_a_benchmark(tree):
    result = run(tree, "--workers", 1, "--benchmark", "digits")
    assert result.exit_code == 2
    assert "6 training images, the benchmark has 1,437" in result.output
    report = json.loads(run(tree, "--workers", 1, "--benchmark", "digits", "--json").stdout)
    assert report["ok"]
    assert "2 classes, the benchmark has 10" in report["differences"]


def test_command_refuses_an_unknown_benchmark(tree):
    result = run(tree, "--benchmark", "cats")
    assert isinstance(result.exception, FourminError)
    assert "digits" in str(result.exception)


def test_help_needs_no_imaging_package():
    code = (
        "import sys; import fourmin.cli.data_command, fourmin.datasets.check; "
        "sys.exit(bool({'PIL', 'numpy', 'sklearn', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
