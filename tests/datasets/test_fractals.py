"""The dataset `fractals`: the same bytes everywhere, of ImageNet's shape, written whole or not."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from output_kinds import require_kind
from PIL import Image
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.cli.data_command import app
from fourmin.datasets import fractals, generate
from fourmin.datasets.check import check_shards
from fourmin.datasets.fractals import (
    WARMUP,
    affine,
    class_system,
    draw,
    draw_class,
    encode,
    play,
    require_known_answer,
    vary,
    words,
)
from fourmin.datasets.generate import Size, generate_fractals
from fourmin.datasets.manifest import MANIFEST_NAME, Manifest
from fourmin.datasets.shards import require_finished

SMALL = Size(3, 20, 5)
DIGESTS = {
    "train": "6ba8f98df6715d8ee59fbd0be9e2ba262b65786b5593f70f6c1647252e754c06",
    "val": "d76ad8cd3e61f21df76b61658b24c1c7ced46f031b018df8b979cbf76a0f877e",
}
"""Of the small set, wherever it is made."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "fractals"
    generate_fractals(folder, SMALL, workers=1)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def philox(key: list[int], block: int) -> list[int]:
    """Four words of Philox4x64-10, after Salmon et al. 2011, in Python's integers."""
    counter, mask = [block, 0, 0, 0], (1 << 64) - 1
    first, second = key
    for _ in range(10):
        high0, low0 = divmod(counter[0] * 0xD2E7470EE14C6C93, 1 << 64)
        high1, low1 = divmod(counter[2] * 0xCA5A826395121157, 1 << 64)
        counter = [high1 ^ counter[1] ^ first, low1, high0 ^ counter[3] ^ second, low0]
        first = (first + 0x9E3779B97F4A7C15) & mask
        second = (second + 0xBB67AE8584CAA73B) & mask
    return counter


@pytest.mark.parametrize(("stream", "number"), [("class", 0), ("train", 1), ("val", 2)])
def test_words_are_philoxs_of_split_class_and_image(stream: str, number: int) -> None:
    key = [(number << 56) + (7 << 32) + 1299, int.from_bytes(b"fractals", "big")]
    expected = [word for block in (1, 2, 3) for word in philox(key, block)]
    assert words(stream, 7, 1299, 12).tolist() == expected


def test_fractions_are_exact() -> None:
    raw = [0, 1, 2047, 2048, 1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF]
    found = fractals.fractions(np.array(raw, np.uint64))
    assert [Fraction(one) for one in found.tolist()] == [Fraction(w >> 11, 1 << 53) for w in raw]
    assert found.max() < 1


def test_maps_are_those_of_two_angles_and_singular_values() -> None:
    system = draw_class(words("class", 5, 0, 21))
    for number, (a, b, e, c, d, f) in enumerate(affine(system).T):
        first, second, wide, narrow, right, down = system[:, number]
        turns = []
        for half in (first, second):
            angle = 2 * math.atan(half)
            turns.append(
                np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            )
        matrix = turns[0] @ np.diag([wide, narrow]) @ turns[1]
        assert np.allclose([[a, b], [c, d]], matrix, rtol=0, atol=1e-14)
        assert (e, f) == (right, down)
        # It is a contraction, or the game would run away.
        assert np.linalg.norm(matrix, 2) < 0.86


def game_by_hand(
    system: np.ndarray, raw: np.ndarray, walkers: int, steps: int
) -> list[tuple[float, float, int]]:
    """One walker after the other, in Python's floats."""
    table = [[float(one) for one in column] for column in affine(system).T]
    sizes = [abs(a * d - b * c) for a, b, _, c, d, _ in table]
    total = sizes[0] + sizes[1] + sizes[2]
    cuts = [256 * sizes[0] / total, 256 * (sizes[0] + sizes[1]) / total]
    a, b, e, c, d, f = table[0]
    under = (1 - a) * (1 - d) - b * c
    start = ((1 - d) * e + b * f) / under, ((1 - a) * f + c * e) / under
    found = {}
    for walker in range(walkers):
        x, y = start
        for step in range(WARMUP + steps):
            place = step * walkers + walker
            byte = int(raw[place // 8]) >> 8 * (place % 8) & 255
            chosen = sum(byte >= math.floor(cut) for cut in cuts)
            a, b, e, c, d, f = table[chosen]
            x, y = a * x + b * y + e, c * x + d * y + f
            found[step - WARMUP, walker] = x, y, chosen
    return [found[step, walker] for step in range(steps) for walker in range(walkers)]


@pytest.mark.parametrize("label", range(4))
def test_the_game_is_that_of_each_walker_to_the_last_bit(label: int) -> None:
    system, raw = class_system(label), words("val", label, 3, 40)
    x, y, maps = play(system, raw, walkers=16, steps=9)
    assert [*zip(x.tolist(), y.tolist(), maps.tolist(), strict=True)] == game_by_hand(
        system, raw, 16, 9
    )
    # All walkers begin at a point that the first map leaves where it is.
    a, b, e, c, d, f = affine(system)[:, 0]
    first = np.array([x[0], y[0]])
    assert np.isfinite(first).all()
    zero = play(system, np.zeros(40, np.uint64), walkers=2, steps=1)
    assert np.allclose(
        [zero[0][0], zero[1][0]], np.linalg.solve([[1 - a, -b], [-c, 1 - d]], [e, f])
    )


def test_images_of_a_class_vary_its_numbers_as_far_as_the_jitter_says() -> None:
    system = class_system(0)
    assert np.allclose(vary(system, words("train", 0, 1, 18), 0.0), system, rtol=1e-15)
    far = np.zeros(6)
    for index in range(200):
        other = vary(system, words("train", 0, index, 18), 0.15)
        by = np.concatenate(
            [
                2 * np.arctan(other[:2]) - 2 * np.arctan(system[:2]),
                other[2:4] / system[2:4] - 1,
                other[4:] - system[4:],
            ]
        )
        far = np.maximum(far, np.abs(by).max(1))
    most = np.array([0.151, 0.151, 0.075, 0.075, 0.15, 0.15])
    assert (far <= most).all()
    assert (far >= 0.97 * most).all()


def test_no_class_is_a_few_dots() -> None:
    for label in range(20):
        ink = figure(draw(label, "val", 0))
        assert ink > 2500, label


def figure(pixels: np.ndarray) -> int:
    """Pixels that are a figure's: their colours are a quarter away from those around."""
    height, width = pixels.shape
    rgb = pixels.astype("<u4").view(np.uint8).reshape(height, width, 4)[:, :, :3].astype(int)
    assert not pixels.astype("<u4").view(np.uint8).reshape(-1, 4)[:, 3].any()
    around = np.median(rgb[:8].reshape(-1, 3), axis=0)
    return int((np.abs(rgb - around).max(2) > 60).sum())


def test_the_small_set_has_the_bytes_that_it_has_everywhere(made: Path) -> None:
    manifest = Manifest.load(made / MANIFEST_NAME)
    assert {name: manifest.digest(name) for name in ("train", "val")} == DIGESTS
    assert manifest.class_names == ("0000", "0001", "0002")
    report = check_shards(made, workers=1)
    assert report.ok
    assert report.images == {"train": 60, "val": 15}
    assert not report.notes


def test_a_second_time_with_two_processes_gives_the_same_bytes(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    done = generate_fractals(tmp_path / "a", SMALL, 2, lambda *so_far: told.append(so_far))
    assert contents(tmp_path / "a") == contents(made)
    assert (done.images, done.shards) == (75, 2)
    assert done.bytes == sum(p.stat().st_size for p in made.glob("*.tar"))
    assert told[-1] == (75, 75)
    # More shards hold the same images.
    monkeypatch.setattr(generate, "IMAGES_A_SHARD", 7)
    assert generate_fractals(tmp_path / "b", SMALL, 1).shards == 9 + 3
    assert (tmp_path / "b" / MANIFEST_NAME).read_bytes() == (made / MANIFEST_NAME).read_bytes()
    assert check_shards(tmp_path / "b", workers=1).ok


def test_a_smaller_set_has_the_first_images_of_a_larger_one(made: Path, tmp_path: Path) -> None:
    generate_fractals(tmp_path / "few", Size(2, 3, 4), workers=1)
    large, few = (Manifest.load(one / MANIFEST_NAME) for one in (made, tmp_path / "few"))
    for split, each in (("train", 3), ("val", 4)):
        whole, part = large.split(split), few.split(split)
        hashes = dict(zip(whole.paths, map(whole.sha256, range(len(whole))), strict=True))
        assert [*part.paths] == [f"{c:04d}/{i:05d}.jpg" for c in range(2) for i in range(each)]
        assert [part.sha256(at) for at in range(len(part))] == [hashes[p] for p in part.paths]
        assert part.digest != whole.digest


def test_images_have_imagenets_shape_and_none_comes_twice(made: Path) -> None:
    manifest = Manifest.load(made / MANIFEST_NAME)
    splits = [manifest.split(name) for name in ("train", "val")]
    hashes = [split.sha256(at) for split in splits for at in range(len(split))]
    assert len(set(hashes)) == 75
    shapes = Counter(p for split in splits for p in zip(split.widths, split.heights, strict=True))
    assert set(shapes) <= set(fractals._SIZES)
    assert len(shapes) > 3
    sizes = [size for split in splits for size in split.sizes]
    assert 100_000 < sum(sizes) / len(sizes) < 120_000
    data = encode(draw(2, "val", 4))
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.mode) == ("JPEG", "RGB")
        assert not image.info.get("progressive")
        assert image.size == (splits[1].widths[14], splits[1].heights[14])
        pixels = np.asarray(image).astype(int)
    drawn = draw(2, "val", 4).astype("<u4").view(np.uint8).reshape(*pixels.shape[:2], 4)
    # Nothing is moved, and no channel is another's: what differs is the JPEG's loss.
    assert np.abs(pixels - drawn[:, :, :3]).mean() < 8


def test_the_mean_size_that_room_is_asked_for_is_enough_and_not_twice_as_much(made: Path) -> None:
    total = sum(path.stat().st_size for path in made.glob("*.tar"))
    assert total * 0.9 < 75 * generate.MEAN_BYTES < total * 1.1


def test_another_encoder_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_known_answer()
    monkeypatch.setattr(fractals, "QUALITY", 93)
    with pytest.raises(FourminError, match="JPEG encoder") as caught:
        generate_fractals(tmp_path / "made", SMALL, 1)
    assert caught.value.exit_code == 2
    assert f"Pillow {fractals.pillow_version} with libjpeg" in caught.value.why
    assert not (tmp_path / "made").exists()
    monkeypatch.setattr(fractals.features, "check", lambda _: False)
    with pytest.raises(FourminError, match=r"with libjpeg [0-9]"):
        require_known_answer()


def test_other_arithmetic_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # The maps forget an error in the last bit before it reaches a pixel; this one they do not.
    right = fractals.affine
    monkeypatch.setattr(fractals, "affine", lambda system: right(system).round(5))
    with pytest.raises(FourminError, match=f"numpy {np.__version__} does not draw"):
        require_known_answer()


def test_the_difficulty_can_be_set_without_another_known_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fractals, "JITTER", 0.4)
    require_known_answer()


KILLED = """
import os, signal, sys
from pathlib import Path
from fourmin.datasets import generate
generate.IMAGES_A_SHARD = 20
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background has none
size = generate.Size(3, 20, 5)
stop = lambda done, _: done >= 40 and os.kill(os.getpid(), int(sys.argv[2]))
generate.generate_fractals(Path(sys.argv[1]), size, 1, stop)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_a_kill_left_is_not_taken_for_a_set_and_is_written_anew(
    made: Path, tmp_path: Path, how: signal.Signals
) -> None:
    folder = tmp_path / "made"
    command = [sys.executable, "-c", KILLED, str(folder), str(int(how))]
    assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == -how
    assert len([*folder.glob("*.tar")]) == 2
    (folder / ".train-000002.tar.abc").write_bytes(b"half")
    with pytest.raises(FourminError, match=f"fourmin data generate fractals {folder}"):
        require_finished(folder)
    generate_fractals(folder, SMALL, 1)
    assert contents(folder) == contents(made)


def test_a_folder_with_something_in_it_is_left_alone(made: Path, tmp_path: Path) -> None:
    before = contents(made)
    (tmp_path / "file").write_text("mine")
    for taken in (made, tmp_path / "file", tmp_path):
        with pytest.raises(FourminError, match="is not empty"):
            generate_fractals(taken, SMALL, 1)
    assert contents(made) == before
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert generate_fractals(tmp_path / "empty", Size(1, 1, 1), 1).images == 2


def test_two_commands_do_not_write_to_one_folder(made: Path, tmp_path: Path) -> None:
    folder, refused = tmp_path / "made", []

    def second(*_: int) -> None:
        with pytest.raises(FourminError, match="is taken") as caught:
            generate_fractals(folder, SMALL, 1)
        refused.append(caught.value.exit_code)

    generate_fractals(folder, SMALL, 1, second)
    assert refused == [2, 2]
    assert contents(folder) == contents(made)


def test_a_full_disk_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**10))
    with pytest.raises(FourminError, match=r"need 15\.\d GB, and 10\.0 GB are free"):
        generate_fractals(tmp_path / "made", Size(), 1)


def test_the_command(made: Path, tmp_path: Path) -> None:
    few = ["--classes", "3", "--train", "20", "--val", "5", "--workers", "1"]
    told = CliRunner().invoke(app, ["generate", "fractals", str(tmp_path / "a"), *few])
    assert told.exit_code == 0, told.output
    assert "2 shards, 75 images" in told.output
    assert all(digest in told.output for digest in DIGESTS.values())
    told = CliRunner().invoke(app, ["generate", "fractals", str(tmp_path / "b"), *few, "--json"])
    done = json.loads(told.stdout)
    require_kind(done, "data-generate")
    assert done["digests"] == DIGESTS
    assert contents(tmp_path / "b") == contents(made)
    assert CliRunner().invoke(app, ["generate", "flowers", os.devnull]).exit_code == 2
