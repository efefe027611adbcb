"""The manifest: its round trip, its digests, and that nothing damaged is accepted."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from speed import SECOND, effort

from fourmin.base.errors import FourminError
from fourmin.datasets.manifest import _LAST, MANIFEST_NAME, ImageRow, Manifest, is_image_name


def row(split: str, path: str, size: int = 10) -> ImageRow:
    return ImageRow(split, path, size, hashlib.sha256(path.encode()).digest(), 20, 30)


ROWS = [
    row("train", "b/2.jpg", 7),
    row("train", "a/é.JPEG"),
    row("val", "b/1.jpeg"),
    row("train", "a/1.jpg"),
    row("val", "a/9.png"),
]


@pytest.fixture
def written(tmp_path):
    path = tmp_path / MANIFEST_NAME
    Manifest.from_rows(ROWS).write(path)
    return path


def test_rows_are_sorted_labelled_and_kept(written):
    manifest = Manifest.load(written)
    assert manifest == Manifest.from_rows(reversed(ROWS))
    train = manifest.split("train")
    assert manifest.class_names == ("a", "b")
    assert train.paths == ["a/1.jpg", "a/é.JPEG", "b/2.jpg"]
    assert list(train.labels) == [0, 0, 1]
    assert list(train.sizes) == [10, 10, 7]
    assert (train.widths[1], train.heights[1]) == (20, 30)
    assert train.sha256(2) == hashlib.sha256(b"b/2.jpg").hexdigest()
    assert len(manifest.split("val")) == 2
    assert [entry.name for entry in written.parent.iterdir()] == [MANIFEST_NAME]


def test_digest_is_sha256_over_path_bytes_and_hash(written):
    lines = "".join(
        f"{path}\t{size}\t{hashlib.sha256(path.encode()).hexdigest()}\n"
        for path, size in (("a/1.jpg", 10), ("a/é.JPEG", 10), ("b/2.jpg", 7))
    )
    expected = hashlib.sha256(lines.encode()).hexdigest()
    assert Manifest.load(written).digest("train") == expected
    assert json.loads(written.read_bytes().split(b"\n")[0])["splits"]["train"] == {
        "images": 3,
        "sha256": expected,
    }


def test_sorting_is_by_utf8_bytes():
    names = ["z", "Z", "é", "a", "\U0001f600", "\uffff"]
    rows = [row(split, f"{name}/x.jpg") for name in names for split in ("train", "val")]
    assert Manifest.from_rows(rows).class_names == ("Z", "a", "z", "é", "\uffff", "\U0001f600")


def reseal(data: bytes, old: bytes, new: bytes, **header) -> bytes:
    """Edit the rows and make `rows_sha256` right again, as a forger would."""
    line, _, body = data.partition(b"\n")
    assert old in body
    body = body.replace(old, new, 1)
    changed = json.loads(line) | {"rows_sha256": hashlib.sha256(body).hexdigest()} | header
    return json.dumps(changed).encode() + b"\n" + body


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"\t7\t", b"\t8\t", "digest of train"),
        (b"train\t0\ta/1.jpg", b"train\t1\ta/1.jpg", "folder of its class"),
        (b"train\t0\ta/1.jpg", b"train\t9\ta/1.jpg", "beyond the class names"),
        (b"train\t0\ta/1.jpg", b"train\t0\ta/../1.jpg", "line 2 is not a row"),
        (b"train\t0\ta/1.jpg", b"train\t00\ta/1.jpg", "line 2 is not a row"),
        (b"train\t0\ta/1.jpg", b"train\t0\ta/z.jpg", "digest of train|not sorted"),
        (b"train\t0\ta/1.jpg", b"train\t0\ta/\xff.jpg", "not sorted|not UTF-8"),
        (b"train\t0\ta/1.jpg", b"val\t0\ta/1.jpg", "val stand before"),
        (b"\t20\t30\n", b"\t0\t30\n", "line 2 is not a row"),
    ],
)
def test_rows_edited_and_resealed_are_refused(written, old, new, reason):
    written.write_bytes(reseal(written.read_bytes(), old, new))
    with pytest.raises(FourminError, match=reason) as caught:
        Manifest.load(written)
    assert str(written) in caught.value.what
    assert "fourmin data check" in caught.value.next_step


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"schema_version": 2}, "schema version"),
        ({"schema_version": True}, "schema version"),
        ({"classes": ["b", "a"]}, "not sorted"),
        ({"classes": ["a", "b", "c"]}, "a class has no image"),
        ({"classes": ["..", "b"]}, "not a folder name"),
        ({"classes": "ab"}, "does not list"),
        ({"splits": {}}, "exactly the splits"),
        ({"splits": {"train": 1, "val": 2}}, "not an object"),
        ({"splits": {"train": {"images": 4}, "val": {}}}, "counts 4 images"),
    ],
)
def test_a_wrong_header_is_refused(written, header, reason):
    written.write_bytes(reseal(written.read_bytes(), b"", b"", **header))
    with pytest.raises(FourminError, match=reason):
        Manifest.load(written)


def test_every_single_changed_byte_is_noticed(written):
    data = written.read_bytes()
    whole = Manifest.load(written)
    for position in range(len(data)):
        written.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        try:
            assert Manifest.load(written) == whole  # a changed space or case in the header
        except FourminError:
            continue


def test_a_file_cut_anywhere_is_refused(written):
    data = written.read_bytes()
    for length in range(len(data)):
        written.write_bytes(data[:length])
        with pytest.raises(FourminError):
            Manifest.load(written)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_arbitrary_bytes_raise_only_fourmin_errors(tmp_path, data):
    path = tmp_path / "any"
    path.write_bytes(data)
    with pytest.raises(FourminError):
        Manifest.load(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["schema_version", "classes", "splits", "rows_sha256"]), json_values
    ),
    st.lists(
        st.tuples(
            st.sampled_from(["train", "val", "x"]),
            st.sampled_from(["0", "1", "-1", ""]),
            st.sampled_from(["a/1.jpg", "a/b/1.jpg", "../1.jpg", "b/\x0b.png", ""]),
            st.sampled_from(["1", "0", "9" * 13]),
            st.sampled_from(["0" * 64, "F" * 64, "0"]),
            st.sampled_from(["1", "0"]),
            st.sampled_from(["1", "x"]),
        ).map("\t".join),
        max_size=4,
    ),
)
def test_hostile_headers_and_rows_raise_only_fourmin_errors(tmp_path, header, rows):
    body = "".join(line + "\n" for line in rows).encode()
    sealed = {
        "schema_version": 1,
        "classes": ["a"],
        "splits": {"train": {}, "val": {}},
        "rows_sha256": hashlib.sha256(body).hexdigest(),
    } | header
    path = tmp_path / "any"
    path.write_bytes(json.dumps(sealed).encode() + b"\n" + body)
    with pytest.raises(FourminError):
        Manifest.load(path)


@pytest.mark.parametrize(
    "head", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000, b'{"a":1,"a":1}']
)
def test_nasty_json_headers_are_refused(tmp_path, head):
    path = tmp_path / "any"
    path.write_bytes(head + b"\n")
    with pytest.raises(FourminError):
        Manifest.load(path)


def test_a_missing_manifest_says_how_to_write_it(tmp_path):
    with pytest.raises(FourminError, match="fourmin data check"):
        Manifest.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([row("train", "a/1.jpg")], "same classes: a"),
        ([row("train", "a/1.jpg"), row("train", "a/1.jpg"), row("val", "a/1.jpg")], "twice"),
        ([row("train", "a/1\t.jpg"), row("val", "a/1.jpg")], "tab"),
        ([row("train", "a/1.gif"), row("val", "a/1.jpg")], "not class/image"),
    ],
)
def test_rows_that_make_no_manifest_are_refused(rows, reason):
    with pytest.raises(ValueError, match=reason):
        Manifest.from_rows(rows)


def test_reading_in_small_blocks_changes_nothing(written, monkeypatch):
    whole = Manifest.load(written)
    data = written.read_bytes()
    for size in (1, 90, 200):
        monkeypatch.setattr("fourmin.datasets.manifest._BLOCK", size)
        written.write_bytes(data)
        _LAST.clear()
        assert Manifest.load(written) == whole
        for old, new, reason in (
            (b"val\t1\tb/1.jpeg", b"val\t1\ta/1.jpeg", "not sorted"),
            (b"train\t1\tb/2.jpg", b"val\t1\tb/0.jpg", "not sorted"),
            (b"train\t0\ta/1.jpg", b"val\t0\ta/1.jpg", "val stand before"),
            (b"val\t1\tb/1.jpeg", b"val\t1\tb/1.jpg.", "line 6 is not a row"),
        ):
            written.write_bytes(reseal(data, old, new))
            with pytest.raises(FourminError, match=reason):
                Manifest.load(written)


name_parts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0/"), min_size=1, max_size=6
).filter(lambda text: text not in (".", ".."))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.tuples(name_parts, name_parts), min_size=1, max_size=12))
def test_any_names_survive_the_round_trip(tmp_path, names):
    rows = [
        row(split, f"{folder}/{file}.jpg") for folder, file in names for split in ("train", "val")
    ]
    path = tmp_path / "m"
    Manifest.from_rows(rows).write(path)
    assert Manifest.load(path) == Manifest.from_rows(rows)


def test_image_names():
    assert all(is_image_name(name) for name in ("a.jpg", "a.JPEG", "a.Jpg", "x.png"))
    assert not any(is_image_name(name) for name in ("a.gif", "jpg", "a.jpg.txt", "a.webp"))


@pytest.mark.untraced
def test_fifty_thousand_rows_load_within_a_second_or_so(tmp_path):
    """ImageNet has 27 times as many; a quadratic parser would take minutes."""
    rows = [
        row(s, f"{i % 100}/{i}.jpg")
        for s, n in (("train", 49_000), ("val", 1000))
        for i in range(n)
    ]
    path = tmp_path / "m"
    Manifest.from_rows(rows).write(path)
    most = 3 * SECOND
    assert effort(lambda: Manifest.load(path), most) <= most
    assert len(Manifest.load(path).split("train")) == 49_000
