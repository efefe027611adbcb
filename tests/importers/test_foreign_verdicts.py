"""The verdict on other benchmarks' results: one for validator, exit code, report and page."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from campaign_factory import make_campaign
from foreign_factory import Record, as_mllog, make_entry, make_package, mlperf_records
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.cli.main import app
from fourmin.report import load_renderer
from fourmin.report.collect import collect
from fourmin.report.side_by_side import put_side_by_side
from fourmin.rules.engine import check
from fourmin.rules.render import FORMATS

REPORTS = ("table", "markdown", "csv", "json", "html")


def validate(*arguments: str | Path, form: str = "json") -> tuple[int, str]:
    """The exit code and standard output, also where an error is raised after it."""
    words = ["validate", "--format", form, *map(str, arguments)]
    done = CliRunner().invoke(app, words, env={"COLUMNS": None})  # as in a pipe: not folded
    if isinstance(done.exception, FourminError):
        assert all((done.exception.what, done.exception.why, done.exception.next_step))
        return done.exception.exit_code, done.stdout
    return done.exit_code, done.stdout


def aborted(run: int, records: list[Record]) -> None:
    records[:] = mlperf_records(run=run, converges=False)


def misses(*runs: int) -> Callable[[int, list[Record]], None]:
    """These runs end below the target."""
    return lambda run, records: aborted(run, records) if run in runs else None


def named(name: str) -> Callable[[int, list[Record]], None]:
    def edit(run: int, records: list[Record]) -> None:
        next(r for r in records if r["key"] == "submission_benchmark")["value"] = name

    return edit


def cut_before(key: str) -> Callable[[int, list[Record]], None]:
    def edit(run: int, records: list[Record]) -> None:
        del records[next(i for i, r in enumerate(records) if r["key"] == key) :]

    return edit


def written(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Every log of a faultless set, in other bytes."""

    def make(root: Path) -> None:
        for log in make_package(root).iterdir():
            log.write_bytes(change(log.read_bytes()))

    return make


def one_of_each(root: Path) -> None:
    folder = make_package(root, edit=misses(0, 1, 2, 3, 4))
    (folder / "result_1.txt").write_bytes(b"")
    (folder / "result_2.txt").write_text(as_mllog(mlperf_records()[:12]))
    bert = mlperf_records()
    named("bert")(0, bert)
    (folder / "result_3.txt").write_text(as_mllog(bert))
    (folder / "result_4.txt").unlink()
    (folder / "result_4.txt").symlink_to("result_0.txt")


def in_the_folder_of(name: str, of_round: str = "v4.0") -> Callable[[Path], None]:
    def make(root: Path) -> None:
        folder = make_package(root, of_round)
        folder.rename(folder.with_name(name))

    return make


def bare(name: str, as_benchmark: str = "resnet") -> Callable[[Path], None]:
    """Two logs in a folder of this name, outside of any package."""

    def make(root: Path) -> None:
        (root / name).mkdir()
        for run in range(2):
            records = mlperf_records(run=run)
            named(as_benchmark)(run, records)
            (root / name / f"{run}.log").write_text(as_mllog(records))

    return make


def lone(edit: Callable[[int, list[Record]], None]) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        records = mlperf_records()
        edit(0, records)
        (root / "one.log").write_text(as_mllog(records))

    return make


NOTHING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "five aborted": (lambda root: make_package(root, edit=aborted), "5 aborted"),
    "five cut off": (lambda root: make_package(root, edit=cut_before("block_stop")), "5 cut off"),
    "cut before run_start": (
        lambda root: make_package(root, edit=cut_before("run_start")),
        "5 cut off",
    ),
    "aborted in v0.5": (
        lambda root: make_package(root, "v0.5", converges=False),
        "5 aborted",
    ),
    "of bert": (lambda root: make_package(root, edit=named("bert")), "5 of bert"),
    "in the folder of bert": (in_the_folder_of("bert"), "this is bert"),
    "in the folder of ssd": (in_the_folder_of("ssd", "v0.7"), "this is ssd"),
    "in a bare folder of bert": (bare("bert"), "this is bert"),
    "of bert in a bare folder of resnet": (bare("resnet", "bert"), "this is bert"),
    "empty files": (written(lambda data: b""), "5 without a record"),
    "gzip": (
        written(gzip.compress),
        "5 without a record; without a record is what is compressed by gzip: unpack it with gunzip",
    ),
    "UTF-16": (
        written(lambda data: data.decode().encode("utf-16")),
        "5 without a record; without a record is what is text in UTF-16: convert it with iconv",
    ),
    "one of each": (
        one_of_each,
        "no result in 5 runs: 2 without a record, 1 aborted, 1 cut off, 1 of bert",
    ),
    "a lone log, aborted": (lone(aborted), "no result in 1 run: 1 aborted"),
    "a lone log of bert": (lone(named("bert")), "this is bert"),
    "a table without rows": (
        lambda root: make_entry(root, table="epoch\thours\ttop1Accuracy\ttop5Accuracy\n"),
        "1 without a row",
    ),
    "an empty tree": (lambda root: (root / "v4.0" / "ACME" / "results").mkdir(parents=True), ""),
}
"""What nobody can judge, each made by a function, and the reason."""


@pytest.mark.parametrize("what", NOTHING)
def test_what_cannot_be_judged_is_neither_good_nor_bad(what: str, tmp_path: Path) -> None:
    make, reason = NOTHING[what]
    make(tmp_path)
    code, output = validate(tmp_path)
    document = json.loads(output)
    assert (code, document["ok"]) == (2, False)
    (checked,) = document["checked"]
    assert (checked["ok"], checked["status"], checked["fails"]) == (False, "not-judged", [])
    assert [f["severity"] for f in document["findings"]] == ["note"] * bool(reason)
    assert all(reason in f["message"] for f in document["findings"])

    for form in ("text", "github", "sarif", "junit"):
        code, output = validate(tmp_path, form=form)
        assert code == 2
        assert "invalid" not in output.lower()
        assert "not valid" not in output
    first, *_, last = validate(tmp_path, form="text")[1].splitlines()
    assert (
        first.endswith("nothing to check there")
        or f": not judged: {reason}" in first
        or ("not judged: no result in" in first or "only ResNet-50 is judged here" in first)
    )
    assert last.startswith("Checked nothing by ruleset")
    assert json.loads(validate(tmp_path, form="sarif")[1])["runs"][0]["properties"]["ok"] is False
    (case,) = ElementTree.fromstring(validate(tmp_path, form="junit")[1]).iter("testcase")
    assert next(child.tag for child in case) == "skipped"

    comparison = collect([tmp_path])
    assert comparison.results == ()
    for result in comparison.failed:
        assert (result.status, result.valid, result.minutes) == ("not-judged", False, None)
        for form in REPORTS:
            said = " ".join(load_renderer(form)(comparison).split())
            assert "not judged" in said.replace("not-judged", "not judged")


def test_the_rest_decides_where_something_cannot_be_judged(tmp_path: Path) -> None:
    make_package(tmp_path / "bad", edit=aborted)
    (tmp_path / "empty").mkdir()
    make_package(tmp_path / "good")
    code, output = validate(tmp_path, tmp_path / "empty")
    document = json.loads(output)
    assert (code, document["ok"]) == (0, True)
    statuses = {c["path"]: c["status"] for c in document["checked"]}
    assert sorted(statuses.values()) == ["not-judged"] * 2 + ["valid"] * 6
    text = validate(tmp_path, tmp_path / "empty", form="text")[1]
    assert "not judged: no result in 5 runs: 5 aborted" in text
    assert text.splitlines()[-1].endswith("; 1 not judged.")
    make_package(tmp_path / "wrong", runs=4)
    assert validate(tmp_path)[0] == 1
    shutil.rmtree(tmp_path / "good")
    shutil.rmtree(tmp_path / "wrong")
    assert validate(tmp_path, make_campaign(tmp_path / "own"))[0] == 0


def test_one_run_that_may_be_the_dropped_slowest_is_a_note(tmp_path: Path) -> None:
    folder = make_package(tmp_path, edit=misses(2))
    code, output = validate("--strict", tmp_path)
    document = json.loads(output)
    assert (code, document["ok"]) == (0, True)
    assert {c["status"] for c in document["checked"]} == {"valid"}
    (miss,) = [f for f in document["findings"] if f["code"] == "RUN009"]
    assert (miss["severity"], miss["path"]) == ("note", f"{folder}/result_2.txt")
    (result,) = collect([tmp_path]).results
    assert (result.status, result.rank, result.minutes is None) == ("valid", 1, False)


@pytest.mark.parametrize("runs", [(0, 3), (0, 1, 2, 3)])
def test_more_of_them_leave_no_result(runs: tuple[int, ...], tmp_path: Path) -> None:
    folder = make_package(tmp_path, edit=misses(*runs))
    code, output = validate(tmp_path)
    assert code == 1
    of_set = json.loads(output)["checked"][0]
    assert (of_set["path"], of_set["status"]) == (str(folder), "fails-here")
    assert of_set["fails"] == ["RUN009"]
    (result,) = collect([tmp_path]).failed
    assert (result.status, result.verdict.fails) == ("fails-here", ("RUN009",))


def test_a_log_that_claims_success_is_held_to_it(tmp_path: Path) -> None:
    def edit(run: int, records: list[Record]) -> None:
        aborted(run, records)
        records[-1]["metadata"]["status"] = "success"

    make_package(tmp_path, edit=edit)
    code, output = validate(tmp_path)
    assert code == 1
    assert json.loads(output)["checked"][0]["fails"] == ["EVA003", "RUN009"]


def early(run: int, records: list[Record]) -> None:
    """An evaluation after epoch 2 beside those every 4."""
    if run == 1:
        at = next(i for i, r in enumerate(records) if r["metadata"].get("epoch_num") == 3)
        more = {**records[at], "key": "eval_accuracy", "value": 0.1}
        more["metadata"] = {**more["metadata"], "epoch_num": 2}
        records.insert(at, more)


def test_every_format_says_what_fails_here(tmp_path: Path) -> None:
    folder = make_package(tmp_path, edit=early)
    words = "fails EVA001 here"
    report = check([tmp_path])
    of_set, *of_runs = report.verdicts
    assert (of_set.path, of_set.status, of_set.words) == (str(folder), "fails-here", words)
    assert [run.status for run in of_runs].count("fails-here") == 1
    text = "\n".join(FORMATS["text"](report))
    assert f"mlperf-run-set {folder}: {words}" in text
    assert f"{folder}/result_1.txt: {words} (2 errors)" in text
    for render in FORMATS.values():
        said = "\n".join(render(report)).lower()
        assert "invalid" not in said
        assert "not valid" not in said

    comparison = collect([tmp_path])
    (result,) = comparison.results
    assert (result.status, result.valid, result.rank) == ("fails-here", False, None)
    assert result.verdict.words == words
    assert result.scaled_minutes is not None
    for form in ("table", "markdown", "html"):
        said = " ".join(load_renderer(form)(comparison).partition("<script>")[0].split())
        assert "INVALID" not in said
        assert all(word in said for word in words.split())
    (row,) = json.loads(load_renderer("json")(comparison))["results"]
    assert (row["status"], row["fails"], row["valid"]) == ("fails-here", ["EVA001"], False)


def test_it_stands_below_the_valid_and_is_compared_with_a_note(tmp_path: Path) -> None:
    fast = make_package(tmp_path / "fast", edit=early, epoch_ms=10_000)
    slow = make_package(tmp_path / "slow")
    comparison = collect([tmp_path])
    assert [(r.path, r.rank) for r in comparison.results] == [(str(slow), 1), (str(fast), None)]
    pair = put_side_by_side("1.0", comparison.results, str(slow), str(fast))
    assert pair.obstacles == ()
    assert pair.conclusion is not None
    assert "B fails EVA001 here" in pair.notes


def test_without_a_time_by_its_own_rules_it_is_compared_with_nothing(tmp_path: Path) -> None:
    few = make_package(tmp_path / "few", epochs=31)
    slow = make_package(tmp_path / "slow")
    comparison = collect([tmp_path])
    last = comparison.results[-1]
    assert (last.path, last.apart, last.verdict.fails) == (str(few), True, ("CNV002",))
    pair = put_side_by_side("1.0", comparison.results, str(slow), str(few))
    assert pair.obstacles == ("B has no time by its own rules: CNV002",)
