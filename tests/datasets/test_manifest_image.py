"""The image of a manifest that a node's workers map: the text's rows, whole and held once."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.datasets import manifest as text
from fourmin.datasets.manifest import MANIFEST_NAME, SPLITS, ImageRow, Manifest
from fourmin.datasets.manifest_image import map_manifest, share_manifest

name_parts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0/"), min_size=1, max_size=6
).filter(lambda part: part not in (".", ".."))
rows_of = st.builds(
    lambda folder, file, size, sha256, width, height: ImageRow(
        "train", f"{folder}/{file}.png", size, sha256, width, height
    ),
    name_parts,
    name_parts,
    st.integers(1, 10**12 - 1),
    st.binary(min_size=32, max_size=32),
    st.integers(1, 999_999),
    st.integers(1, 999_999),
)


def rows_in(path: Path) -> dict[str, list[list[str]]]:
    """The rows of a manifest by split, read by another program's rules than ours."""
    body = path.read_bytes().partition(b"\n")[2].decode()
    lines = csv.reader(body.split("\n")[:-1], delimiter="\t", quoting=csv.QUOTE_NONE)
    found: dict[str, list[list[str]]] = {name: [] for name in SPLITS}
    for split, *fields in lines:
        found[split].append(fields)
    return found


def rows_of_manifest(manifest: Manifest) -> dict[str, list[list[str]]]:
    return {
        name: [
            [str(split.labels[i]), split.paths[i], str(split.sizes[i]), split.sha256(i),
             str(split.widths[i]), str(split.heights[i])]
            for i in range(len(split))
        ]
        for name, split in manifest.splits.items()
    }  # fmt: skip


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A manifest of 40 training and 20 validation images in two classes."""
    rows = [
        ImageRow(split, f"{label}/é{i}.jpg", 10 + i, hashlib.sha256(b"%d" % i).digest(), 20, 30 + i)
        for split, count in (("train", 20), ("val", 10))
        for label in ("ant", "bee")
        for i in range(count)
    ]
    path = tmp_path / MANIFEST_NAME
    Manifest.from_rows(rows).write(path)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(rows_of, min_size=1, max_size=12, unique_by=lambda row: row.path))
def test_an_image_holds_the_rows_of_the_text(tmp_path, rows):
    path = tmp_path / MANIFEST_NAME
    Manifest.from_rows([*rows, *(row._replace(split="val") for row in rows)]).write(path)
    shared = share_manifest(path, tmp_path / "image")
    mapped = map_manifest(tmp_path / "image")
    assert rows_of_manifest(mapped) == rows_of_manifest(shared) == rows_in(path)
    text._LAST.clear()
    read = Manifest.load(path)
    assert mapped == read
    assert mapped.facts() == read.facts()
    for name in SPLITS:
        split, fields = mapped.split(name), rows_in(path)[name]
        assert list(split.paths) == [row[1] for row in fields]
        assert split.paths[1:] == [row[1] for row in fields][1:]
        assert split.paths[-1] == fields[-1][1]
        with pytest.raises(IndexError):
            split.paths[len(fields)]


def test_a_mapped_manifest_writes_the_same_text(written, tmp_path):
    share_manifest(written, tmp_path / "image")
    map_manifest(tmp_path / "image").write(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == written.read_bytes()


def test_the_manifest_is_parsed_once_and_looked_at_each_time(written, tmp_path, monkeypatch):
    share_manifest(written, tmp_path / "image")
    monkeypatch.setattr(text, "_parse", lambda *_: pytest.fail("parsed again"))
    share_manifest(written, tmp_path / "next")
    assert map_manifest(tmp_path / "next") == map_manifest(tmp_path / "image")
    data = written.read_bytes()
    written.write_bytes(data.replace(b"\t30\n", b"\t31\n", 1))
    with pytest.raises(FourminError, match="rows have changed"):
        share_manifest(written, tmp_path / "third")
    assert not (tmp_path / "third").exists()


def spoil(image: Path, data: bytes) -> None:
    """Another file in its place: who writes into one that is mapped ends who mapped it."""
    image.unlink()
    image.write_bytes(data)


def seen_by(image: Path, part: int, parts: int) -> Manifest | None:
    """What a worker gets, or None where it refuses."""
    try:
        return map_manifest(image, part, parts)
    except FourminError:
        return None


def test_every_changed_byte_of_an_image_is_noticed_by_one_of_its_workers(written, tmp_path):
    image = tmp_path / "image"
    share_manifest(written, image)
    data, whole = image.read_bytes(), map_manifest(image)
    for position in range(0, len(data), 7):
        spoil(image, data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        if all(seen_by(image, part, 3) == whole for part in range(3)):
            # A space of the header, or the padding behind a column.
            assert data[position : position + 1] in (b" ", b"\0")


def test_an_image_of_another_manifest_has_other_facts(written, tmp_path):
    share_manifest(written, tmp_path / "image")
    other = tmp_path / "other"
    rows = [ImageRow(split, "a/1.jpg", 1, bytes(32), 1, 1) for split in SPLITS]
    Manifest.from_rows(rows).write(other)
    share_manifest(other, tmp_path / "image")
    assert map_manifest(tmp_path / "image").facts() == Manifest.load(other).facts()
    assert map_manifest(tmp_path / "image").facts() != Manifest.load(written).facts()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: data[:-8],
        lambda data: data + bytes(8),
        lambda data: data[: len(data) // 2],
        lambda data: b"[]\n" + data,
        lambda data: b"{}\n",
        lambda data: data.replace(b'"version": 2', b'"version": 1'),
        lambda data: data.replace(b'"little"', b'"middle"'),
        lambda data: data.replace(b"[[", b"[5,["),
        lambda data: json.dumps({"version": 2, "byteorder": sys.byteorder}).encode() + b"\n",
    ],
)
def test_what_is_no_image_is_refused(written, tmp_path, change):
    image = tmp_path / "image"
    share_manifest(written, image)
    spoil(image, change(image.read_bytes()))
    with pytest.raises(FourminError, match="prepared for this run"):
        map_manifest(image)
    share_manifest(written, image)
    assert map_manifest(image) == Manifest.load(written)


def test_a_missing_image_and_a_folder_without_room_say_so(written, tmp_path):
    with pytest.raises(FourminError, match="prepared for this run"):
        map_manifest(tmp_path / "none")
    with pytest.raises(FourminError, match="for the workers") as caught:
        share_manifest(written, tmp_path / "none" / "image")
    assert "TMPDIR" in caught.value.next_step


def test_a_data_folder_that_cannot_be_written_will_do(written, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    written.rename(data / MANIFEST_NAME)
    data.chmod(0o500)
    before = sorted(data.iterdir())
    share_manifest(data / MANIFEST_NAME, tmp_path / "image")
    assert sorted(data.iterdir()) == before
    data.chmod(0o700)


def test_two_launches_may_write_one_at_once(written, tmp_path):
    """Two nodes of a test on one machine do: whoever maps finds a whole one."""
    image = tmp_path / "image"
    share_manifest(written, image)
    expected = map_manifest(image)
    program = (
        "import sys; from pathlib import Path; "
        "from fourmin.datasets.manifest_image import share_manifest\n"
        "for _ in range(60): share_manifest(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, str(written), str(image)]
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(subprocess.run, command, check=True) for _ in range(2)]
        while not all(one.done() for one in both):
            assert map_manifest(image) == expected
    assert [one.result().returncode for one in both] == [0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [MANIFEST_NAME, "image"]


WORKER = """
import sys
from pathlib import Path
from fourmin.datasets.manifest_image import map_manifest
rank = int(sys.argv[2])
def held():
    wanted = ("Pss", "Private_Clean", "Private_Dirty")
    lines = (line.split() for line in open("/proc/self/smaps_rollup"))
    return {key[:-1]: int(value[0]) for key, *value in lines if key[:-1] in wanted}
print(flush=True); sys.stdin.readline()
before = held()
manifest = map_manifest(Path(sys.argv[1]), rank, 8)
for name in ("train", "val"):  # as workers do, in some order
    split = manifest.split(name)
    for i in range(rank, len(split), 8): split.paths[i], split.sizes[i], split.labels[i]
    sum(split.widths), sum(split.heights), sum(split.hashes[:: 4096])
print(flush=True); sys.stdin.readline()
after = held()
print(after["Pss"] - before["Pss"], after["Private_Dirty"] - before["Private_Dirty"], flush=True)
sys.stdin.readline()
"""


@pytest.mark.untraced
def test_eight_workers_hold_it_once(tmp_path):
    """100,000 rows: 10 MB of columns. What the eight hold of it together is that and a little."""
    rows = [
        ImageRow(split, f"n{i * 50 // n:08d}/n{i:09d}_{i * 7:08d}.JPEG", i + 1, bytes(32), 500, 375)
        for split, n in (("train", 95_000), ("val", 5000))
        for i in range(n)
    ]
    path, image = tmp_path / MANIFEST_NAME, tmp_path / "image"
    Manifest.from_rows(rows).write(path)
    share_manifest(path, image)
    copy = image.stat().st_size / 1024
    assert copy > 8000
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(image), str(rank)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(8)
    ]  # fmt: skip

    def all_go() -> list[str]:
        said = [worker.stdout.readline() for worker in workers]
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        return said

    all_go()
    all_go()
    told = [tuple(map(int, line.split())) for line in all_go()]
    for worker in workers:
        assert worker.wait(20) == 0
    assert sum(pss for pss, _ in told) < copy + 8 * 1000
    assert max(dirty for _, dirty in told) < 1000
