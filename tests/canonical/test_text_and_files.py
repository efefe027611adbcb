"""Text made harmless, and files written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from durability import recorded
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.base.files import (
    append_line,
    drop_torn_line,
    ensure_writable_folder,
    json_bytes,
    user_folder,
    write_durably,
)
from fourmin.base.text import printable, printable_lines


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb", "a\\u202eb"),
        ("line\nbreak\r", "line\\nbreak\\r"),
        ("\u2028", "\\u2028"),
        ("ordinary é 漢", "ordinary é 漢"),
        ("\ud800", "\\ud800"),
        (None, "None"),
    ],
)
def test_what_could_move_a_cursor_is_shown_instead(hostile: object, shown: str) -> None:
    assert printable(hostile) == shown


@given(st.text())
def test_printable_text_is_one_line_without_control_characters(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() or all(c.isprintable() or c.isspace() for c in shown)
    assert "\x1b" not in shown
    assert "\n" not in shown
    shown.encode()


def test_long_text_is_cut_and_lines_stay_lines() -> None:
    assert printable("x" * 600) == "x" * 499 + "…"
    assert printable_lines("a\x07\nb") == "a\\x07\nb"


def test_a_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old" * 100)
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = recorded(monkeypatch)
    write_durably(tmp_path / "file", b"12345")
    assert told == ["sync .file.tmp 5", ".file.tmp -> file", f"sync {tmp_path.name}/"]


def test_a_line_is_on_the_disk_when_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"one\ntw")
    told = recorded(monkeypatch)
    drop_torn_line(path)
    append_line(path, b"two")
    assert told == ["sync ledger 4", "sync ledger 8"]


def test_lines_are_appended_and_a_torn_one_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"")
    append_line(path, b"one")
    append_line(path, b"two")
    with path.open("ab") as file:
        file.write(b"thr")
    drop_torn_line(path)
    assert path.read_bytes() == b"one\ntwo\n"
    drop_torn_line(path)
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"one\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:2]))
    with pytest.raises(OSError, match="No space left"):
        append_line(path, b"two")
    assert path.read_bytes() == b"one\n"


def test_json_files_are_readable_and_strict() -> None:
    assert json_bytes({"a": [1, "é"]}).endswith(b"}\n")
    assert json.loads(json_bytes({"a": [1, "é"]})) == {"a": [1, "é"]}
    with pytest.raises(ValueError, match="JSON compliant"):
        json_bytes({"a": float("nan")})


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(FourminError, match="cannot write to the results folder") as caught:
        ensure_writable_folder(blocked / "results", "results folder")
    assert caught.value.exit_code == 2


def test_xdg_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert user_folder("XDG_CACHE_HOME", ".cache") == Path("/somewhere/cache/fourmin")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification says: ignore it
    assert user_folder("XDG_CACHE_HOME", ".cache") == Path.home() / ".cache/fourmin"
