"""What is told of errors, before anything is registered and after."""

from __future__ import annotations

import errno
import gzip
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from campaign_factory import make_campaign
from PIL import Image, UnidentifiedImageError
from typer.testing import CliRunner

from fourmin.base.errors import FourminError, Interrupted
from fourmin.base.files import require_writable, require_writable_file, write_output
from fourmin.base.kinds import kind_of
from fourmin.base.mishaps import explained, raise_if_ours, told
from fourmin.base.processes import Scratch
from fourmin.base.text import command
from fourmin.cli.main import app
from fourmin.cli.start import Stream, require_output
from fourmin.datasets.images import decode_fault
from fourmin.launch import Surroundings
from fourmin.launch.network import parse_address
from fourmin.launch.torchrun import TorchrunLauncher
from fourmin.ledger.known import KnownCampaign, against_memory, earlier_campaigns, remember
from fourmin.results.folder import read_bytes
from fourmin.rules.engine import check


@pytest.mark.parametrize(
    ("error", "what", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "cannot use a/b", 2),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "cannot use a/b", 2),
        (socket.gaierror(-2, "Name or service not known"), "a host name does not resolve", 2),
        (MemoryError(), "there is too little memory", 2),
        (RuntimeError("can't start new thread"), "there is too little memory", 2),
        (ImportError("no such library"), "a part of the installation cannot be loaded", 2),
        (Interrupted("SIGHUP"), "interrupted by SIGHUP", 130),
        (KeyboardInterrupt(), "interrupted", 130),
        (KeyError("x"), "this is an error of fourmin itself", 70),
    ],
)
def test_every_error_has_words_and_a_documented_code(
    error: BaseException, what: str, code: int
) -> None:
    told = explained(error)
    assert (told.what, told.exit_code) == (what, code)
    assert told.next_step or code == 130
    page = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
    assert f"| {code} |" in page


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ("", 0)),
        ("host", ("host", 0)),
        ("host:1", ("host", 1)),
        (":5", ("", 5)),
        ("::1", ("::1", 0)),
        ("[::1]", ("::1", 0)),
        ("[fe80::1%eth0]:65535", ("fe80::1%eth0", 65535)),
        ("127.0.0.1:99999", None),
        ("[::1]:99999", None),
        ("[::1", None),
        ("a:b", None),
        ("a:1:2", None),
        ("http://a:1", None),
        ("a b", None),
        ("\u0661:\u0662", None),
    ],
)
def test_addresses(text: str, found: tuple[str, int] | None) -> None:
    if found is not None:
        assert parse_address(text) == found
        return
    with pytest.raises(FourminError, match="is no HOST:PORT"):
        parse_address(text)


def test_a_taken_port_and_an_unknown_name_are_refused_before_anything_is_registered(
    tmp_path: Path,
) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FourminError, match=f"cannot listen on TCP port {port}"):
            TorchrunLauncher(Surroundings(port=port)).survey(2)
    with pytest.raises(FourminError, match="does not resolve"):
        TorchrunLauncher(Surroundings(address="nohost.invalid")).survey(2)
    options = ["run", "--practice", "--nodes", "2", "--launcher", "torchrun", "--results-dir"]
    done = CliRunner().invoke(app, [*options, str(tmp_path / "r"), "--address", "nohost.invalid"])
    assert isinstance(done.exception, FourminError)
    assert "does not resolve" in str(done.exception)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("content", [b"", b"nowhere\n", b"\xff\xfe", b"x" * 5000])
def test_a_campaign_file_that_names_no_campaign(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    done = CliRunner().invoke(app, ["run", "--campaign-file", str(tmp_path / "file")])
    assert isinstance(done.exception, FourminError)
    assert "names no campaign" in done.exception.what


def test_a_file_that_a_user_names(tmp_path: Path) -> None:
    write_output(Path("/dev/null"), b"x")
    assert Path("/dev/null").is_char_device()
    (tmp_path / "link").symlink_to("target")
    write_output(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"x"
    for path in (tmp_path, tmp_path / "target" / "below"):
        with pytest.raises(FourminError, match="cannot write to the"):
            require_writable_file(path, "report")
    with pytest.raises(FourminError, match="cannot write"):
        require_writable(Path("/proc/nothing"), "results folder")


def test_a_memory_that_cannot_be_used_is_told_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert against_memory() is None
    assert not (tmp_path / "state").exists()
    remember(KnownCampaign("a", "digits", False, "b"))
    file = tmp_path / "state" / "fourmin" / "campaigns.jsonl"
    with file.open("ab") as memory:
        memory.write(b'{"campaign": "torn')  # by a disk that was full
    remember(KnownCampaign("c", "digits", False, "d"))
    lost: list[str] = []
    known = earlier_campaigns(tmp_path / "results", "digits", "self", lost.append)
    assert [one.campaign for one in known] == ["a", "c"]
    assert lost == ["this user's memory of campaigns: 1 line cannot be read"]
    assert (told := against_memory()) is not None
    assert told.what == lost[0]
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nothing")
    assert (told := against_memory()) is not None
    into = ["--submitter", "lab", "--into", str(tmp_path / "submissions")]
    done = CliRunner().invoke(app, ["register", "--preset", "digits", *into])
    assert done.exit_code == 0, done.exception
    assert "the plan may lack earlier campaigns, and says so: this user's memory" in done.output
    (plan,) = tmp_path.glob("submissions/*/*/*/*/campaign.json")
    assert "memory of campaigns" in json.loads(plan.read_bytes())["earlier_unseen"][0]
    findings = check([plan.parent]).findings
    assert not [one for one in findings if one.code.startswith("SCH")]


def test_what_may_not_be_read_is_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = make_campaign(tmp_path)
    real = os.open

    def denied(path: object, *arguments: int, **names: object) -> int:
        if str(path).endswith("events.log"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *arguments, **names)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(PermissionError):
        read_bytes(campaign / "run-1" / "events.log")
    with pytest.raises(PermissionError):
        check([campaign])
    raise_if_ours(FileNotFoundError(errno.ENOENT, "gone"))  # says something of the file


def _zipped() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("a", "b")
    return content.getvalue()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (gzip.compress(b"x", mtime=0), "gzip"),
        (_zipped(), "zip archive"),
        ("text\n".encode("utf-16"), "UTF-16"),
        ("text\n".encode("utf-16-le"), "UTF-16"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"<!DOCTYPE html><html>", "page of the web"),
        (b"Epoch: [3][10/5004]  Loss 2.1  Acc@1 75.9\n", "another tool"),
        (b"", "empty"),
        (b":::MLLOG {}\n", ""),
        (b"some text\n", ""),
    ],
)
def test_kinds_of_files(data: bytes, word: str, tmp_path: Path) -> None:
    kind = kind_of(data)
    assert (word in kind) if word else (kind == "")
    (tmp_path / "result_0.txt").write_bytes(data)
    if word not in ("", "empty"):
        report = check([tmp_path / "result_0.txt"])
        (verdict,) = report.checked
        assert word in verdict.not_judged


def test_an_image_that_is_none_is_told_without_an_object_of_this_process() -> None:
    with pytest.raises(UnidentifiedImageError, match="BytesIO") as caught:
        Image.open(io.BytesIO(b"no image"))
    assert decode_fault(caught.value) == "is neither a JPEG nor a PNG by content"


def test_a_package_that_is_missing_is_named() -> None:
    with (
        pytest.raises(FourminError, match="the package absent_altogether is missing"),
        told("cannot be made here", "install it", ImportError),
    ):
        importlib.import_module("absent_altogether.part")


def test_commands_are_quoted() -> None:
    assert command("run", "--resume", Path("a b/c")) == "fourmin run --resume 'a b/c'"


def test_scratch_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import os, signal; from fourmin.base.processes import Scratch\n"
        "(Scratch().path / 'file').write_text('x'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=variables, check=False)
    assert done.returncode == -signal.SIGKILL
    for _ in range(100):
        if not [*tmp_path.iterdir()]:
            break
        signal.sigtimedwait([], 0.1)
    assert not [*tmp_path.iterdir()]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 100)))
    with pytest.raises(FourminError, match="temporary folder"):
        Scratch()


def test_a_stream_remembers_what_it_could_not_write(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        lost = io.TextIOWrapper(io.BufferedWriter(Stream(full.fileno(), "w", closefd=False)))
        monkeypatch.setattr(sys, "stdout", lost)
        print("x" * 100_000)
        with pytest.raises(FourminError, match="standard output cannot be written") as caught:
            require_output("look there")
        monkeypatch.undo()
        assert (caught.value.why, caught.value.next_step) == (
            "No space left on device",
            "look there",
        )


def test_names_are_utf8_in_every_locale(tmp_path: Path) -> None:
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    missing = tmp_path / "Größe"
    done = subprocess.run(
        [sys.executable, "-m", "fourmin", "validate", missing],
        env=variables,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"no {missing}" in done.stderr.decode()


def test_a_signal_that_comes_where_nobody_can_take_it_is_not_lost() -> None:
    program = (
        "import os, signal, time, weakref\n"
        "from fourmin.cli.start import run\n"
        "class Thing: pass\n"
        "def commands():\n"
        "    thing = Thing()\n"
        "    mark = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))\n"
        "    del thing\n"
        "    time.sleep(30)\n"
        "run(commands)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 130
    assert done.stderr == b"error: interrupted by SIGTERM\n"
