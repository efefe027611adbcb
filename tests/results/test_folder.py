"""Folders that somebody else filled: what is listed, what is refused, and that nothing raises."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fourmin.results import folder as module
from fourmin.results.folder import FAULTS, JsonFile, list_folder, read_bytes


def _faults(root: Path) -> list[tuple[str, str]]:
    faults = list_folder(root).faults
    assert all(fault.kind in FAULTS for fault in faults)
    return [(fault.kind, fault.path) for fault in faults]


def test_files_and_folders_are_listed_sorted(tmp_path: Path) -> None:
    (tmp_path / "b" / "d").mkdir(parents=True)
    for name in ("z.json", "b/y.log", "a.json"):
        (tmp_path / name).write_text("x")
    contents = list_folder(tmp_path)
    assert contents.files == ("a.json", "b/y.log", "z.json")
    assert contents.folders == ("b", "b/d")
    assert [fault.kind for fault in contents.faults] == ["too-deep"]


def test_links_are_faults_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    os.symlink("real", tmp_path / "linked")
    os.symlink("real/file", tmp_path / "file")
    os.symlink("nowhere", tmp_path / "broken")
    contents = list_folder(tmp_path)
    assert contents.files == ("real/file",)
    assert _faults(tmp_path) == [("symlink", "broken"), ("symlink", "file"), ("symlink", "linked")]


@pytest.mark.parametrize("name", ["é", "a b", "a\nb", "a:b", "\x1b[2J", "x" * 201])
def test_names_that_are_not_plain(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    assert _faults(tmp_path) == [("name", name)]
    assert list_folder(tmp_path).files == ()


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff"
    os.close(os.open(path, os.O_CREAT))
    assert [kind for kind, _ in _faults(tmp_path)] == ["name"]


def test_names_that_differ_by_case(tmp_path: Path) -> None:
    (tmp_path / "A.json").write_text("x")
    (tmp_path / "a.json").write_text("x")
    assert _faults(tmp_path) == [("case", "a.json")]


def test_special_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    assert _faults(tmp_path) == [("special", "pipe"), ("special", "socket")]
    assert read_bytes(tmp_path / "pipe") == "special"


def test_too_many_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NAMES", 3)
    for name in "abcde":
        (tmp_path / name).write_text("x")
    assert _faults(tmp_path) == [("too-many", "")]
    assert len(list_folder(tmp_path).files) == 3


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert _faults(tmp_path / "missing") == [("unreadable", "")]


def test_reading_has_a_limit_and_follows_no_link(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    os.symlink("file", tmp_path / "link")
    assert read_bytes(path, 5) == b"12345"
    assert read_bytes(path, 4) == "too-large"
    assert read_bytes(tmp_path / "link") == "unreadable"
    assert read_bytes(tmp_path) == "special"
    assert read_bytes(tmp_path / "missing") == "unreadable"


def test_json_files_keep_their_bytes_and_their_fault() -> None:
    good = JsonFile("a.json", b'{"a": 1}')
    assert good.value == {"a": 1}
    assert good.error is None
    assert good.data == b'{"a": 1}'
    bad = JsonFile("a.json", b'{"a": 1, "a": 2}')
    assert bad.value is None
    assert bad.error is not None
    assert bad.error.kind == "duplicate-key"
