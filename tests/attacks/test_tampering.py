"""No change to a finished campaign goes unnoticed, down to one digit."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from campaign_factory import make_campaign
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fourmin.ledger.view import CampaignView
from fourmin.results.folder import list_folder
from fourmin.rules.engine import check_campaign, check_view, load_campaign
from fourmin.rules.rule import ERROR, Finding

pytestmark = pytest.mark.untraced

VOUCHING = ("LED001", "LED003", "LED004")
"""The rules that hold every byte of a finished campaign."""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_campaign(tmp_path_factory.mktemp("tampering"), runs=3, practice=True, epochs=2)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> CampaignView:
    folder = tmp_path_factory.mktemp("digits")
    return load_campaign(make_campaign(folder, runs=2, practice=True, epochs=2), "")


@pytest.fixture(scope="module")
def loaded(campaign: Path) -> CampaignView:
    view = load_campaign(campaign, "")
    assert [f for f in check_view(view) if f.severity == ERROR] == []
    return view


def _changed(view: CampaignView, name: str, data: bytes) -> CampaignView:
    return CampaignView(view.path, {**view.files, name: data}, view.folders, view.faults)


def _digits(data: bytes) -> Iterator[int]:
    return (match.start() for match in re.finditer(rb"[0-9]", data))


def _errors_at(findings: list[Finding], name: str) -> list[str]:
    return [f.code for f in findings if f.severity == ERROR and f.path == name]


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_every_digit_of_every_file(small: CampaignView, step: int) -> None:
    """Every seventh, unless there is time."""
    tried: Counter[str] = Counter()
    for name, data in small.files.items():
        if data is None:
            continue
        for at in islice(_digits(data), None, None, step):
            digit = b"%d" % ((data[at] - 48 + 1 + at % 9) % 10)
            assert digit != data[at : at + 1]
            view = _changed(small, name, data[:at] + digit + data[at + 1 :])
            assert _errors_at(check_view(view, select=VOUCHING), name), (name, at)
            tried[name.rpartition("/")[2]] += 1
    assert set(tried) == {"campaign.json", "ledger.jsonl", "summary.json", "events.log",
                          "result.json"}  # fmt: skip
    assert min(tried.values()) > 100 // step


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_changed_byte_by_all_rules(loaded: CampaignView, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(n for n, d in loaded.files.items() if d)))
    content = loaded.files[name] or b""
    at = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != content[at]))
    view = _changed(loaded, name, content[:at] + bytes([byte]) + content[at + 1 :])
    findings = check_view(view)
    # A ledger without its last line end is that of a campaign that goes on, which has no summary.
    torn = name == "ledger.jsonl" and at == len(content) - 1
    assert _errors_at(findings, "summary.json" if torn else name)
    assert not [f for f in findings if "could not be applied" in f.message]


@example(byte=0)
@example(byte=ord(" "))
@settings(max_examples=5, deadline=None)
@given(byte=st.integers(0, 255).filter(lambda value: value != ord("\n")))
def test_the_last_byte_of_the_ledger(loaded: CampaignView, byte: int) -> None:
    view = _changed(loaded, "ledger.jsonl", loaded.files["ledger.jsonl"][:-1] + bytes([byte]))
    assert _errors_at(check_view(view), "summary.json")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_line_that_is_dropped_doubled_or_moved(
    loaded: CampaignView, data: st.DataObject
) -> None:
    names = ["ledger.jsonl", *(n for n in loaded.files if n.endswith("events.log"))]
    name = data.draw(st.sampled_from(names))
    lines = (loaded.files[name] or b"").splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    how = data.draw(st.sampled_from(["drop", "double", "swap"]))
    if how == "drop":
        del lines[at]
    elif how == "double":
        lines.insert(at, lines[at])
    else:
        other = data.draw(st.integers(0, len(lines) - 1).filter(lambda value: value != at))
        lines[at], lines[other] = lines[other], lines[at]
    findings = check_view(_changed(loaded, name, b"".join(lines)))
    # The last lines of a ledger may have been cut off by a kill, but not from beside their files.
    assert [f for f in findings if f.severity == ERROR], (name, how, at)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_hostile_bytes_never_raise(loaded: CampaignView, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(loaded.files)))
    junk = data.draw(
        st.one_of(
            st.binary(max_size=200),
            st.sampled_from(
                [
                    b"",
                    b"null",
                    b"[]",
                    b"{}",
                    b'"text"',
                    b"1e999",
                    b"[" * 100_000,
                    b'{"data":{},"hash":"","index":0,"kind":"run-intent","previous":"","time_ms":0}\n',
                    b':::MLLOG {"key": "configuration", "value": {"max_epochs": 1e300}}\n',
                    b':::MLLOG {"namespace":"","time_ms":1,"event_type":"POINT_IN_TIME","key":'
                    b'"seed","value":[[[]]],"metadata":{}}\n',
                ]
            ),
        )
    )
    content = loaded.files[name] or b""
    at = data.draw(st.integers(0, len(content)))
    whole = data.draw(st.booleans())
    findings = check_view(_changed(loaded, name, junk if whole else content[:at] + junk))
    assert not [f for f in findings if "could not be applied" in f.message]


@pytest.mark.parametrize("run", [1, 2, 3])
def test_a_deleted_run_folder(campaign: Path, tmp_path: Path, run: int) -> None:
    shutil.copytree(campaign, tmp_path / "c")
    shutil.rmtree(tmp_path / "c" / f"run-{run}")
    findings = check_campaign(tmp_path / "c", "")
    assert "RUN002" in _errors_at(findings, f"run-{run}")


def test_two_runs_swapped(campaign: Path, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    shutil.copytree(campaign, folder)
    (folder / "run-1").rename(folder / "other")
    (folder / "run-2").rename(folder / "run-1")
    (folder / "other").rename(folder / "run-2")
    findings = check_campaign(folder, "")
    assert {"LED004", "LOG005"} <= set(_errors_at(findings, "run-1/events.log"))


@pytest.mark.parametrize("name", ["ledger.jsonl", "campaign.json", "summary.json"])
def test_a_deleted_file(campaign: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(campaign, tmp_path / "c")
    (tmp_path / "c" / name).unlink()
    assert _errors_at(check_campaign(tmp_path / "c", ""), name)


def test_every_file_taken_away_emptied_or_replaced_by_another(loaded: CampaignView) -> None:
    for name in loaded.files:
        without = {other: data for other, data in loaded.files.items() if other != name}
        assert _errors_at(check_view(CampaignView("", without, loaded.folders)), name)
        assert _errors_at(check_view(_changed(loaded, name, b"")), name)
        for data in loaded.files.values():
            if data is not None and data != loaded.files[name]:
                assert _errors_at(check_view(_changed(loaded, name, data), select=VOUCHING), name)


def test_every_file_under_another_name(loaded: CampaignView) -> None:
    for name, data in loaded.files.items():
        for other in (f"{name}.bak", f"{name}.pending", f"run-9/{name.rpartition('/')[2]}"):
            folders = (*loaded.folders, "run-9") if other.startswith("run-9/") else loaded.folders
            view = CampaignView("", {**loaded.files, other: data}, folders)
            assert [f for f in check_view(view) if f.severity == ERROR], other


def test_every_ledger_line_dropped(loaded: CampaignView) -> None:
    lines = (loaded.files["ledger.jsonl"] or b"").splitlines(keepends=True)
    for at in range(len(lines)):
        rest = b"".join(lines[:at] + lines[at + 1 :])
        errors = [f for f in check_view(_changed(loaded, "ledger.jsonl", rest))
                  if f.severity == ERROR]  # fmt: skip
        assert errors, at


def test_a_campaign_killed_in_run_3_is_unfinished_and_not_invalid(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, killed_in=3)
    findings = check_campaign(folder, "")
    assert [f for f in findings if f.severity == ERROR] == []
    assert [(f.code, f.path) for f in findings if f.severity == "warning"] == [
        ("RUN006", "ledger.jsonl")
    ]


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_log_cut_off_by_a_power_failure(tmp_path: Path, cut: int) -> None:
    folder = make_campaign(tmp_path, killed_in=3)
    log = folder / "run-3" / "events.log"
    log.write_bytes(log.read_bytes()[:-cut])
    findings = check_campaign(folder, "")
    assert [f for f in findings if f.severity == ERROR] == []


def test_a_list_of_the_folder_is_all_there_is(campaign: Path) -> None:
    assert list_folder(campaign).faults == ()
