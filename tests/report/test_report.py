"""The report: what is compared, what counts how often, and how hostile names read."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
from pathlib import Path

import pytest
from campaign_factory import CREATED_MS, make_campaign, system_description
from report_factory import gpu_campaign, gpu_system

from fourmin.base.files import json_bytes
from fourmin.report import FORMATS, load_renderer
from fourmin.report.collect import collect
from fourmin.report.group import compare
from fourmin.report.model import Result
from fourmin.results.statistics import log_interval

HOUR_MS = 3_600_000


def campaign(results: Path, number: int, **story: object) -> Path:
    """A campaign of its own time and beacon."""
    return make_campaign(
        results, created_ms=CREATED_MS + number * HOUR_MS, beacon=f"{number:064x}", **story
    )


def test_a_result_has_every_key_and_its_numbers_follow_from_the_runs(tmp_path: Path) -> None:
    folder = campaign(tmp_path, 1)
    document = json.loads(load_renderer("json")(collect([tmp_path])))
    (result,) = document["results"]
    assert document["ruleset"] == "1.0"
    assert set(result) >= {
        "source", "path", "submitter", "system", "benchmark", "division", "chips",
        "global_batch_size", "quality_target", "runs", "minutes", "scaled_minutes", "ci95", "cv",
        "epochs_mean", "images_per_second", "scaling_efficiency", "campaigns", "waivers",
        "findings", "valid", "registration",
    }  # fmt: skip
    assert result["path"] == str(folder)
    assert (result["source"], result["registration"], result["valid"]) == ("fourmin", "self", True)
    assert (result["chips"], result["global_batch_size"], result["campaigns"]) == (1, 64, 1)
    minutes = [run["minutes"] for run in result["runs"]]
    assert len(minutes) == 5
    assert result["minutes"] == pytest.approx(sum(sorted(minutes)[1:4]) / 3, rel=1e-12)
    assert result["ci95"] == pytest.approx(log_interval(minutes))
    assert result["runs"][0]["path"] == f"{folder}/run-1"
    assert {run["status"] for run in result["runs"]} == {"converged"}


def test_started_in_is_from_the_intent_of_the_attempt_that_started(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, retried=[2])
    seconds: dict[int, float] = {}
    asked: dict[int, int] = {}
    for line in (folder / "ledger.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "run-intent":
            asked[record["data"]["run"]] = record["time_ms"]
        elif record["kind"] == "run-start":
            run = record["data"]["run"]
            seconds[run] = (record["time_ms"] - asked[run]) / 1000
    told = single(folder).to_json()
    assert [run["started_in_seconds"] for run in told["runs"]] == [*seconds.values()]
    assert told["started_in_seconds"] == sorted(seconds.values())[2]
    assert min(seconds.values()) > 0


def test_every_campaign_counts_and_the_median_one_is_shown(tmp_path: Path) -> None:
    for number, pace in enumerate((100.0, 300.0, 200.0, 500.0)):
        campaign(tmp_path, number, epoch_ms=pace)
    comparison = collect([tmp_path])
    (result,) = comparison.results
    assert result.standing.campaigns == 4
    ordered = sorted(single(tmp_path / p.name).minutes for p in tmp_path.iterdir())
    assert result.minutes == ordered[2]  # of an even number the slower middle one


def test_one_gpu_and_both_of_one_machine_are_two_results(tmp_path: Path) -> None:
    for gpus in (1, 2):
        gpu_campaign(tmp_path, gpus, gpus, system=gpu_system(2))
    assert {(r.chips, r.standing.campaigns) for r in collect([tmp_path]).results} == {
        (1, 1),
        (2, 1),
    }


def single(folder: Path) -> Result:
    (result,) = collect([folder]).results
    return result


def test_a_campaign_that_never_closed_counts_as_failed(tmp_path: Path) -> None:
    campaign(tmp_path, 1)
    campaign(tmp_path, 2, killed_in=3)
    comparison = collect([tmp_path])
    (result,) = comparison.results
    assert result.standing.campaigns == 2
    assert result.minutes is None
    assert [failed.state for failed in comparison.failed] == ["unfinished"]
    campaign(tmp_path, 3)
    assert collect([tmp_path]).results[0].minutes is not None


def test_one_failed_run_is_the_dropped_slowest_and_two_leave_no_result(tmp_path: Path) -> None:
    one = single(campaign(tmp_path / "a", 1, not_converged=[2]))
    assert one.minutes == pytest.approx(
        sum(sorted(run.minutes for run in one.runs if run.minutes is not None)[1:]) / 3
    )
    assert (one.ci95, one.cv) == (None, None)
    two = single(campaign(tmp_path / "b", 2, not_converged=[2], aborted=[4]))
    assert two.minutes is None
    assert [run.facts.status for run in two.runs].count("converged") == 3


def test_the_same_campaign_in_two_places_counts_once(tmp_path: Path) -> None:
    folder = campaign(tmp_path / "results", 1)
    place = tmp_path / "submissions" / "self" / "2cpu-x86_64" / "digits"
    shutil.copytree(folder, place / folder.name)
    comparison = collect([tmp_path / "submissions", tmp_path / "results"])
    assert [result.standing.campaigns for result in comparison.results] == [1]
    assert "submissions" in comparison.results[0].path


def test_a_copy_in_a_wrong_place_neither_hides_nor_counts_beside_the_original(
    tmp_path: Path,
) -> None:
    submissions = tmp_path / "submissions"
    folder = campaign(tmp_path / "results", 1)
    copy = submissions / "aaa" / "2cpu-x86_64" / "digits" / folder.name
    home = submissions / "self" / "2cpu-x86_64" / "digits" / folder.name
    shutil.copytree(folder, copy)
    shutil.copytree(folder, home)
    (home.parents[1] / "system.json").write_bytes(json_bytes(system_description()))
    for paths in ([submissions], [copy, home], [submissions, tmp_path / "results"]):
        comparison = collect(paths)
        (result,) = comparison.results
        place = (result.path, result.submitter, result.standing.campaigns)
        assert place == (str(home), "self", 1)
        assert result.valid
    # Alone it is shown as whose folder it lies in, and as what it is.
    (result,) = collect([copy]).results
    assert (result.submitter, result.valid) == ("aaa", False)


def test_practice_never_counts_and_is_listed_apart(tmp_path: Path) -> None:
    campaign(tmp_path, 1, practice=True, runs=2)
    comparison = collect([tmp_path])
    assert comparison.results == ()
    assert len(comparison.practice) == 1
    text = load_renderer("table")(comparison)
    assert "no benchmark result" in text
    assert "practice campaigns, which never count" in text


def test_an_edited_result_is_shown_as_invalid_and_its_number_is_not_believed(
    tmp_path: Path,
) -> None:
    folder = campaign(tmp_path, 1)
    honest = single(folder).minutes
    path = folder / "summary.json"
    document = json.loads(path.read_bytes())
    document["minutes"] = 0.0001
    path.write_text(json.dumps(document))
    result = single(folder)
    assert not result.valid
    assert result.verdict.findings
    assert result.minutes == honest
    assert "INVALID" in load_renderer("table")(collect([folder]))


def test_what_campaigns_say_of_each_other_and_waivers_reach_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fourmin.rules import engine
    from fourmin.rules.waivers import Waiver

    alone = len(single(campaign(tmp_path, 1)).verdict.findings)
    # It does not name the first (LED010), and is the slower one, which is shown of two.
    campaign(tmp_path, 2, epoch_ms=400.0)
    assert max(len(r.verdict.findings) for r in collect([tmp_path]).results) > alone

    folder = campaign(tmp_path / "edited", 3)
    (folder / "stray.txt").write_text("")
    broken = single(folder)
    assert not broken.valid
    code = next(f.code for f in engine.check([folder]).findings if f.fails)
    view = engine.load_campaign(folder)
    waiver = Waiver(code, view.digest, view.head, "a stray file", "a maintainer")
    monkeypatch.setattr(engine, "load_waivers", lambda: (waiver,))
    waived = single(folder)
    assert (waived.valid, waived.verdict.waivers) == (True, (code,))
    assert f"waived {code}" in load_renderer("markdown")(collect([folder]))


def test_results_that_must_not_be_compared_are_in_different_tables(tmp_path: Path) -> None:
    a = single(campaign(tmp_path, 1))
    b = dataclasses.replace(a, quality_target=0.9, group="other", identity="other")
    text = load_renderer("markdown")(compare("1.0", [a, b]))
    assert text.count("### ") == 2


def test_the_csv_has_numbers_in_full(tmp_path: Path) -> None:
    result = single(campaign(tmp_path, 1))
    rows = list(csv.DictReader(io.StringIO(load_renderer("csv")(collect([tmp_path])))))
    assert len(rows) == 1
    assert float(rows[0]["minutes"]) == result.minutes
    assert [float(m) for m in rows[0]["run_minutes"].split()] == [r.minutes for r in result.runs]


def test_garbage_is_a_row_and_not_an_exception(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "campaign.json").write_bytes(b'{"benchmark": NaN}')
    (folder / "ledger.jsonl").write_bytes(b"\xff\xfe garbage")
    comparison = collect([tmp_path])
    (result,) = comparison.results
    assert (result.valid, result.minutes, result.state) == (False, None, "unfinished")
    for form in FORMATS:
        assert load_renderer(form)(comparison)
