"""What is found below a path, and the shape of the report."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tamper import apply, read_ledger, read_records, reseal, write_records

from fourmin.base.canonical import canonical_bytes
from fourmin.base.errors import FourminError
from fourmin.base.files import json_bytes
from fourmin.ledger.view import CampaignView
from fourmin.rules.engine import check, check_campaign, check_view, load_campaign
from fourmin.rules.rule import ERROR, RUN, Problem, Rule


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine") / "results"
    make_campaign(folder, runs=2, practice=True)
    make_campaign(folder, killed_in=2)
    return folder


def _kinds(paths: list[Any]) -> list[tuple[str, str]]:
    return [(checked.kind, checked.path) for checked in check(paths).checked]


def test_campaigns_below_a_folder_of_results(results: Path) -> None:
    campaigns = sorted(results.iterdir())
    assert _kinds([results]) == [("campaign", str(path)) for path in campaigns]
    assert _kinds([results.parent]) == _kinds([results])


def test_one_campaign_named_twice_is_checked_once(results: Path) -> None:
    campaign = min(results.iterdir())
    assert len(_kinds([results, campaign, f"{campaign}/"])) == 2


def test_paths_are_as_the_caller_gave_them(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(results.parent)
    report = check(["results"])
    assert {c.path for c in report.checked} == {f"results/{p.name}" for p in results.iterdir()}
    assert all(finding.path.startswith("results/") for finding in report.findings)


def test_a_file_stands_for_its_campaign(results: Path) -> None:
    campaign = min(results.iterdir())
    assert _kinds([campaign / "campaign.json"]) == [("campaign", str(campaign))]
    assert _kinds([campaign / "run-1" / "events.log"]) == [("run", str(campaign / "run-1"))]


def test_a_run_in_its_campaign_shows_its_own_findings(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    shutil.copytree(min(results.glob("practice-*")), folder)
    for run in (1, 2):
        with (folder / f"run-{run}" / "events.log").open("a") as log:
            log.write("\n")
    report = check([folder / "run-2"])
    assert [c.kind for c in report.checked] == ["run"]
    assert not report.ok
    assert {f.path for f in report.findings} == {str(folder / "run-2" / "events.log")}


def test_a_lone_run_is_checked_by_its_log(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run-1"
    shutil.copytree(min(results.glob("practice-*")) / "run-1", folder)
    report = check([folder])
    assert report.ok
    assert not report.clean
    apply(folder, [{"file": "result.json", "set": "/minutes", "to": 0.001}])
    assert [f.code for f in check([folder]).findings if f.severity == ERROR] == ["LOG004"]
    (folder / "result.json").write_text("{")
    assert [f.code for f in check([folder]).findings if f.severity == ERROR] == ["LOG004"]
    (folder / "events.log").unlink()
    assert not check([folder]).ok


def test_a_submission_and_its_campaigns(results: Path, tmp_path: Path) -> None:
    system = tmp_path / "submissions" / "lab" / "box"
    campaign = system / "digits" / "one"
    shutil.copytree(min(results.glob("practice-*")), campaign)
    (system / "system.json").write_text("{}")
    kinds = _kinds([tmp_path / "submissions"])
    assert kinds == [("submission", str(system)), ("campaign", str(campaign))]


def test_links_and_hidden_folders_are_not_looked_into(results: Path, tmp_path: Path) -> None:
    campaign = min(results.iterdir())
    os.symlink(results, tmp_path / "link")
    shutil.copytree(campaign, tmp_path / ".hidden" / "campaign")
    (tmp_path / "empty").mkdir()
    assert _kinds([tmp_path]) == [("unknown", str(tmp_path))]


def test_what_is_not_there_and_what_is_nothing(results: Path, tmp_path: Path) -> None:
    with pytest.raises(FourminError, match="does not exist"):
        check([results, tmp_path / "missing"])
    nothing = check([tmp_path])
    assert (nothing.judged, nothing.ok) == (False, False)
    assert check([results, tmp_path]).judged
    kinds = _kinds([results, tmp_path])
    assert kinds[-1] == ("unknown", str(tmp_path))


def test_the_json_contract(results: Path) -> None:
    value = json.loads(json.dumps(check([results]).to_json()))
    assert set(value) >= {"ruleset", "ok", "checked", "findings"}
    assert value["ruleset"] == "1.0"
    assert value["ok"] is True
    assert all(set(item) >= {"path", "kind", "ok"} for item in value["checked"])
    keys = {"code", "name", "severity", "path", "line", "message", "hint"}
    assert value["findings"]
    assert all(set(item) >= keys for item in value["findings"])


def test_a_rule_that_fails_is_a_finding_and_hides_nothing() -> None:
    def failing(view: object) -> Any:
        """A rule.

        How to put it right
            Nothing.
        """
        yield Problem("first", path="a")
        raise KeyError("value")

    rule = Rule("LOG999", "failing", ERROR, RUN, failing)
    first, second = rule.findings(None, "folder")
    assert (first.path, first.message, first.hint) == ("a", "first", "Nothing.")
    assert (second.path, second.severity) == ("folder", ERROR)
    assert "could not be applied" in second.message
    assert "KeyError" in second.message


def test_a_pipe_or_an_endless_file_is_a_finding(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    shutil.copytree(min(results.glob("practice-*")), folder)
    (folder / "summary.json").unlink()
    os.mkfifo(folder / "summary.json")
    (folder / "run-1" / "result.json").unlink()
    with (folder / "run-1" / "result.json").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    found = {(f.code, f.path) for f in check_campaign(folder, "")}
    assert ("SCH004", "summary.json") in found
    assert ("SCH004", "run-1/result.json") in found


JUNK: list[Any] = [
    None, True, False, -1, 0, 1.5, 1e300, 2**62, -(2**53), "", "x" * 50, "\u202e", [], {}, [None],
    [[[]]], {"a": {"b": []}}, {"epoch": "1"}, "nan", "0" * 64, [1, "1", None],
]  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [place for key, item in items for place in [(*path, key), *_places(item, (*path, key))]]


def _put(value: Any, place: tuple[Any, ...], junk: Any) -> None:
    for key in place[:-1]:
        value = value[key]
    value[place[-1]] = junk


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name", ["campaign.json", "ledger.jsonl", "summary.json", "run-1/events.log",
             "run-2/result.json"]
)  # fmt: skip
def test_every_place_with_a_value_of_every_type(results: Path, name: str) -> None:
    view = load_campaign(min(results.glob("practice-*")), "")
    content = view.files[name] or b""
    prefix = b":::MLLOG " if name.endswith(".log") else b""
    one = name.endswith(".json")
    lines = [content] if one else content.splitlines()
    values = [json.loads(line.removeprefix(prefix)) for line in lines]
    # One of each kind: list indices do not count, nor lines of the same event.
    kinds = {
        (str(value.get("event", value.get("key"))), *(k for k in path if isinstance(k, str))): (
            at, path
        )
        for at, value in enumerate(values)
        for path in _places(value)
    }  # fmt: skip
    assert len(kinds) >= 18
    for at, path in kinds.values():
        for junk in (None, True, -1, 1e300, "x", [], {}, [None], {"a": {"b": []}}):
            changed = json.loads(json.dumps(values[at]))
            _put(changed, path, junk)
            new = [*lines[:at], prefix + json.dumps(changed).encode(), *lines[at + 1 :]]
            files = {**view.files, name: b"\n".join(new) + b"\n"}
            findings = check_view(CampaignView(view.path, files, view.folders, view.faults))
            assert not [f for f in findings if "could not be applied" in f.message], (path, junk)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_values_of_any_other_type_never_break_a_rule(
    results: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("junk") / "c"
    shutil.copytree(min(results.glob("practice-*")), folder)
    names = ["campaign.json", "ledger.jsonl", "summary.json", "run-1/events.log",
             "run-2/result.json"]  # fmt: skip
    name = data.draw(st.sampled_from(names))
    path = folder / name
    for _ in range(data.draw(st.integers(1, 3))):
        junk = data.draw(st.sampled_from(JUNK))
        if name.endswith("log"):
            records: Any = read_records(path)
            _put(records, data.draw(st.sampled_from([p for p in _places(records) if len(p) > 1])),
                 junk)  # fmt: skip
            write_records(path, records)
        elif name.endswith("jsonl"):
            lines: Any = read_ledger(path)
            _put(lines, data.draw(st.sampled_from([p for p in _places(lines) if len(p) > 1])), junk)
            try:
                path.write_bytes(b"".join(canonical_bytes(line) + b"\n" for line in lines))
            except ValueError:
                return  # has no canonical form
        else:
            value: Any = json.loads(path.read_bytes())
            _put(value, data.draw(st.sampled_from(_places(value))), junk)
            path.write_bytes(json_bytes(value))
    try:
        reseal(folder, ["ledger"])
    except (TypeError, ValueError, KeyError, AttributeError, OSError):
        pass  # the files no longer fit together enough for an attacker's script
    findings = check_campaign(folder, "")
    assert not [f for f in findings if "could not be applied" in f.message]
    shutil.rmtree(folder.parent)
