"""What the rules find in MLPerf's and DAWNBench's files; above all what the official tools pass."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign_factory import (
    STARTS_MS,
    Record,
    as_mllog,
    make_entry,
    make_package,
    mlperf_records,
    record,
    system_json,
)
from typer.testing import CliRunner

from fourmin.cli.main import app
from fourmin.report.collect import collect
from fourmin.rules.engine import check
from fourmin.rules.foreign.check import MOST_FINDINGS
from fourmin.rules.registry import JUDGES, RULES
from fourmin.rules.rule import ERROR, NOTE, WARNING, Finding


def find(records: list[Record], key: str, nth: int = 0) -> Record:
    """The nth record of a key."""
    return [item for item in records if item["key"] == key][nth]


def value(key: str, new: Any, nth: int = 0) -> Callable[[list[Record]], None]:
    def edit(records: list[Record]) -> None:
        find(records, key, nth)["value"] = new

    return edit


def move(key: str, after: str, nth: int = 0) -> Callable[[list[Record]], None]:
    """Put a record behind another one, with its time."""

    def edit(records: list[Record]) -> None:
        item = find(records, key, nth)
        records.remove(item)
        place = records.index(find(records, after, -1))
        item["time_ms"] = records[place]["time_ms"]
        records.insert(place + 1, item)

    return edit


def stop_before_start(records: list[Record]) -> None:
    find(records, "run_stop")["time_ms"] = find(records, "run_start")["time_ms"] - 60_000


def second_start(records: list[Record]) -> None:
    place = len(records) // 2
    records.insert(place, record(records[place]["time_ms"], "run_start"))


def status(name: str) -> Callable[[list[Record]], None]:
    def edit(records: list[Record]) -> None:
        find(records, "run_stop")["metadata"]["status"] = name

    return edit


def every_epoch(records: list[Record]) -> None:
    for item in [r for r in records if r["key"] == "epoch_stop"]:
        epoch = item["metadata"]["epoch_num"]
        if epoch % 4 != 3:
            place = records.index(item) + 1
            records.insert(place, record(item["time_ms"], "eval_accuracy", 0.5, epoch_num=epoch))


def samples(records: list[Record]) -> None:
    find(records, "train_samples")["value"] = 1000
    find(records, "eval_samples")["value"] = 10


def times(change: Callable[[int], Any]) -> Callable[[list[Record]], None]:
    def edit(records: list[Record]) -> None:
        for item in records:
            item["time_ms"] = change(item["time_ms"])

    return edit


def train_on(records: list[Record]) -> None:
    """The accuracy of an earlier evaluation passes already."""
    find(records, "eval_accuracy", -2)["value"] = 0.7595


def from_zero(records: list[Record]) -> None:
    for item in records:
        for name in ("epoch_num", "first_epoch_num"):
            if name in item["metadata"]:
                item["metadata"][name] -= 1


def later_start(records: list[Record]) -> None:
    place = records.index(find(records, "run_start"))
    for item in records[place:]:
        item["time_ms"] += 600_000


def without(key: str) -> Callable[[list[Record]], None]:
    def edit(records: list[Record]) -> None:
        records[:] = [item for item in records if item["key"] != key]

    return edit


LET_THROUGH = {
    "run_stop before run_start": (stop_before_start, "CLK001"),
    "run_stop above run_start": (move("run_stop", "init_stop"), "LOG003"),
    "duplicate run_start": (second_start, "LOG002"),
    "passing evaluation after run_stop": (move("eval_accuracy", "run_stop", -1), "EVA003"),
    "evaluation after run_stop": (move("eval_accuracy", "run_stop", -1), "LOG003"),
    "status aborted": (status("aborted"), "EVA003"),
    "status nonsense": (status("splendid"), "EVA003"),
    "no seed": (without("seed"), "SEE002"),
    "an evaluation every epoch": (every_epoch, "EVA001"),
    "NaN accuracy": (value("eval_accuracy", float("nan"), 2), "EVA002"),
    "1,000 training and 10 evaluation samples": (samples, "DAT001"),
    "momentum 0.5": (value("lars_opt_momentum", 0.5), "HYP002"),
    "learning rate -1": (value("lars_opt_base_learning_rate", -1), "HYP001"),
    "decay steps abc": (value("lars_opt_learning_rate_decay_steps", "abc"), "HYP001"),
    "batch true": (value("global_batch_size", True), "HYP001"),
    "batch 3200.5": (value("global_batch_size", 3200.5), "HYP001"),
    "string times": (times(str), "LOG007"),
    "all times equal": (times(lambda _: STARTS_MS["v4.0"]), "CLK006"),
    "cache_clear false": (value("cache_clear", False), "SYS005"),
    "cache_clear after run_start": (move("cache_clear", "train_samples"), "LOG003"),
    "training past the first pass": (train_on, "EVA003"),
    "epochs from 0": (from_zero, "LOG003"),
    "ten minutes between init_stop and run_start": (later_start, "CLK003"),
}
"""Each fault of the list `What the official tools let through`, and the rule that finds it."""


def errors(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.code for finding in findings if finding.severity == ERROR}


def validate(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["validate", "--format", "json", *arguments])
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("fault", sorted(LET_THROUGH))
def test_what_the_official_tools_let_through_is_found(fault: str, tmp_path: Path) -> None:
    change, code = LET_THROUGH[fault]

    def edit(run: int, records: list[Record]) -> None:
        if run == 2:
            change(records)

    folder = make_package(tmp_path, edit=edit)
    exit_code, document = validate(str(tmp_path))
    assert exit_code == 1
    log = f"{folder}/result_2.txt"
    found = [f for f in document["findings"] if f["severity"] == "error" and f["path"] == log]
    assert code in {f["code"] for f in found}, found
    assert all("could not be applied" not in f["message"] for f in document["findings"])
    by_path = {checked["path"]: checked for checked in document["checked"]}
    assert by_path[log]["ok"] is False
    of_set, first = document["look_first"]
    assert (of_set["path"], first["path"]) == (str(folder), log)
    assert first["code"] in {f["code"] for f in found}
    for path in (str(folder), log):  # a set is no better than its runs
        assert (by_path[path]["ok"], by_path[path]["status"]) == (False, "fails-here")
        assert code in by_path[path]["fails"]
    others = {f"{folder}/result_{run}.txt" for run in (0, 1, 3, 4)}
    assert all(by_path[other]["ok"] for other in others)


@pytest.mark.parametrize("fault", sorted(LET_THROUGH))
def test_it_is_found_in_a_lone_log_as_well(fault: str, tmp_path: Path) -> None:
    change, code = LET_THROUGH[fault]
    records = mlperf_records()
    change(records)
    log = tmp_path / "somewhere.log"
    log.write_text(as_mllog(records))
    exit_code, document = validate(str(log))
    assert exit_code == 1
    assert [c["kind"] for c in document["checked"]] == ["mlperf-run"]
    assert code in {f["code"] for f in document["findings"] if f["severity"] == "error"}


def test_a_key_twice_in_one_object_is_found(tmp_path: Path) -> None:
    def text(run: int, content: str) -> str:
        twice = content.replace('"value": 3200', '"value": 800, "value": 3200')
        return twice if run == 1 else content

    make_package(tmp_path, text=text)
    exit_code, document = validate(str(tmp_path))
    assert exit_code == 1
    found = [f for f in document["findings"] if f["severity"] == "error"]
    assert [(f["code"], Path(f["path"]).name) for f in found] == [("LOG001", "result_1.txt")]
    assert found[0]["line"] is not None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (value("submission_division", "Closed"), "LOG007"),
        (value("submission_status", "available"), "LOG007"),
        (value("submission_org", ""), "LOG007"),
        (value("opt_name", "adam"), "HYP002"),
        (value("gradient_accumulation_steps", 0), "HYP001"),
        (value("lars_opt_weight_decay", 7e-5), "HYP002"),
        (value("lars_opt_end_learning_rate", 0.001), "HYP002"),
        (value("lars_epsilon", 1e-9), "HYP002"),
        (lambda records: find(records, "eval_accuracy")["metadata"].pop("epoch_num"), "LOG007"),
        (lambda records: find(records, "block_start")["metadata"].update(epoch_count=0), "LOG007"),
        (lambda records: find(records, "run_stop")["metadata"].pop("status"), "LOG007"),
        (lambda records: records.insert(0, records.pop(-3)), "LOG003"),
    ],
)
def test_what_the_official_checker_asks_for_is_asked_for_here(
    change: Callable[[list[Record]], object], code: str, tmp_path: Path
) -> None:
    records = mlperf_records()
    change(records)
    (tmp_path / "one.log").write_text(as_mllog(records))
    report = check([tmp_path])
    assert code in errors(report.findings), report.findings
    assert all("could not be applied" not in f.message for f in report.findings)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("of_round", sorted(STARTS_MS))
def test_a_faultless_set_of_every_round_has_no_error(
    of_round: str, named: bool, tmp_path: Path
) -> None:
    folder = make_package(tmp_path, of_round, named=named)
    report = check([tmp_path])
    assert [f for f in report.findings if f.severity == ERROR] == []
    assert [c.kind for c in report.checked] == ["mlperf-run-set", *["mlperf-run"] * 5]
    assert report.checked[0].path == str(folder)
    assert [f.code for f in report.findings if f.code == "RUN010"] == ["RUN010"]


def _glued(text: str) -> str:
    return text.replace("}\n:::MLLOG", "} :::MLLOG", 3)


AS_WRITTEN: dict[str, Callable[[str], str]] = {
    "CR LF": lambda text: text.replace("\n", "\r\n"),
    "prefixes": lambda text: "".join(f"12: node-3 {line}\n" for line in text.splitlines()),
    "glued": _glued,
    "other output": lambda text: f"loading\n{text}caf\u00e9 ::: done\n",
    "float times": lambda text: text.replace(', "event_type"', '.0, "event_type"'),
    "no namespace": lambda text: text.replace('"namespace": "", ', ""),
    "a cut line": lambda text: text + ':::MLLOG {"namespace": ""\n',
}


@pytest.mark.parametrize("way", sorted(AS_WRITTEN))
def test_ways_of_writing_are_no_errors(way: str, tmp_path: Path) -> None:
    for run in range(5):
        text = AS_WRITTEN[way](as_mllog(mlperf_records(run=run)))
        (tmp_path / f"{run}.log").write_bytes(text.encode("latin-1"))
    report = check([tmp_path])
    assert [c.kind for c in report.checked] == ["mlperf-run-set", *["mlperf-run"] * 5]
    assert errors(report.findings) == set()
    minutes = [run.minutes for result in collect([tmp_path]).results for run in result.runs]
    assert len(minutes) == 5
    assert None not in minutes


@pytest.mark.parametrize(
    ("of_round", "key", "code"),
    [
        ("v0.7", "opt_name", "LOG002"),
        ("v0.7", "gradient_accumulation_steps", None),
        ("v0.7", "seed", None),
        ("v1.0", "gradient_accumulation_steps", "LOG002"),
        ("v1.0", "weights_initialization", "LOG002"),
        ("v3.0", "weights_initialization", "LOG002"),
        ("v3.1", "weights_initialization", None),
        ("v3.1", "lars_epsilon", "LOG002"),
        ("v4.0", "run_stop", "LOG002"),
        ("v4.0", "submission_org", "LOG002"),
        ("v4.0", "init_start", "LOG002"),
        ("v4.0", "cache_clear", "LOG002"),
        ("v4.0", "eval_samples", "LOG002"),
        ("v0.6", "opt_name", None),
        ("v0.5", "run_stop", "LOG002"),
    ],
)
def test_each_round_demands_its_own_keys(
    of_round: str, key: str, code: str | None, tmp_path: Path
) -> None:
    make_package(tmp_path, of_round, edit=lambda run, records: without(key)(records))
    found = errors(check([tmp_path]).findings)
    assert (code in found) if code else not found


def test_the_open_division_is_free_where_mlperf_frees_it(tmp_path: Path) -> None:
    def edit(run: int, records: list[Record]) -> None:
        for change in (without("opt_name"), without("seed"), from_zero, every_epoch):
            change(records)
        value("lars_opt_momentum", 0.5)(records)

    make_package(tmp_path, edit=edit, division="open")
    assert errors(check([tmp_path]).findings) == set()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (value("lars_opt_base_learning_rate", 11.5), "RUN003"),
        (value("submission_division", "open"), "RUN003"),
        (value("submission_platform", "another"), "RUN003"),
        (value("global_batch_size", 1600), "RUN003"),
        (without("model_bn_span"), "RUN003"),
    ],
)
def test_a_set_with_mixed_settings_is_found(
    change: Callable[[list[Record]], None], code: str, tmp_path: Path
) -> None:
    folder = make_package(tmp_path, edit=lambda run, records: run == 3 and change(records))
    report = check([tmp_path])
    assert code in errors(report.findings)
    assert {f.path for f in report.findings if f.code == code} == {f"{folder}/result_3.txt"}


def test_the_same_value_in_another_spelling_is_no_other_setting(tmp_path: Path) -> None:
    change = value("lars_opt_learning_rate_warmup_epochs", 2.0)
    make_package(tmp_path, edit=lambda run, records: run == 3 and change(records))
    assert errors(check([tmp_path]).findings) == set()


def test_a_run_that_is_shown_twice_is_found(tmp_path: Path) -> None:
    folder = make_package(tmp_path)
    copied = (folder / "result_1.txt").read_text().replace('"value": 1001', '"value": 77')
    (folder / "result_4.txt").write_text(copied)
    found = [f for f in check([tmp_path]).findings if f.severity == ERROR]
    assert [(f.code, f.path) for f in found] == [("RUN004", f"{folder}/result_4.txt")]


@pytest.mark.parametrize("runs", [1, 4, 6])
def test_five_runs_make_a_result(runs: int, tmp_path: Path) -> None:
    make_package(tmp_path, runs=runs)
    assert errors(check([tmp_path]).findings) == {"RUN001"}


def test_faster_than_the_reference_is_an_error(tmp_path: Path) -> None:
    make_package(tmp_path, epochs=31)
    assert errors(check([tmp_path]).findings) == {"CNV002"}


def test_no_machine_is_faster_than_its_chips(tmp_path: Path) -> None:
    folder = make_package(tmp_path, epoch_ms=1000)  # 1,281,167 images/s on 16 chips
    file = folder.parents[2] / "systems" / "8xA1000.json"
    for name, found in (("NVIDIA V100-SXM2-16GB", {"PHY001"}), ("ACME A1000", set())):
        file.write_text(json.dumps(system_json(accelerator_model_name=name)))
        assert errors(check([tmp_path]).findings) == found


def test_a_log_of_another_benchmark_in_the_folder_is_found(tmp_path: Path) -> None:
    change = value("submission_benchmark", "bert")
    make_package(tmp_path, edit=lambda run, records: run == 2 and change(records))
    assert errors(check([tmp_path]).findings) == {"LOG005", "RUN003"}
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("resnet", "bert"):
        records = mlperf_records()
        value("submission_benchmark", name)(records)
        (bare / f"{name}.log").write_text(as_mllog(records))
    assert "LOG005" in errors(check([bare]).findings)


def test_scaling_json_is_compared(tmp_path: Path) -> None:
    folder = make_package(tmp_path)
    (folder / "scaling.json").write_text('{"scaling_factor": 1.1}')
    found = [f for f in check([tmp_path]).findings if f.severity == ERROR]
    assert [(f.code, f.path) for f in found] == [("RUN008", f"{folder}/scaling.json")]
    mean = 35 + (3200 - 1632) / (3264 - 1632) * (457 / 13 - 35)
    (folder / "scaling.json").write_text(json.dumps({"scaling_factor": mean / 35}))
    assert errors(check([tmp_path]).findings) == set()


def test_descriptions_are_asked_for_and_other_benchmarks_named(tmp_path: Path) -> None:
    folder = make_package(tmp_path)
    systems = folder.parents[2] / "systems"
    (systems / "8xA1000.json").unlink()
    (folder.parent / "bert").mkdir()
    (folder.parent / "bert" / "result_0.txt").write_text("anything")
    report = check([tmp_path])
    told = {(f.code, f.severity, Path(f.path).name) for f in report.findings}
    assert ("SUB001", WARNING, "resnet") in told
    assert ("SCH006", NOTE, "bert") in told
    assert report.ok
    system = system_json()
    del system["number_of_nodes"]
    (systems / "8xA1000.json").write_text(json.dumps(system))
    assert [f.message for f in check([tmp_path]).findings if f.code == "SUB001"] == [
        "systems/8xA1000.json: without number_of_nodes"
    ]


def test_paths_are_as_the_caller_gave_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_package(tmp_path)
    monkeypatch.chdir(folder.parent)
    for given in (".", "resnet", "../8xA1000", "resnet/../resnet"):
        report = check([given])
        assert all(c.path.startswith(given) for c in report.checked)
        assert [c.kind for c in report.checked][:2] == ["mlperf-run-set", "mlperf-run"]
        assert not [f for f in report.findings if f.code == "SUB001"]
    (tmp_path / "link.txt").symlink_to(folder / "result_0.txt")
    assert [c.kind for c in check([tmp_path / "link.txt"]).checked] == ["mlperf-run"]


def test_links_that_go_round_in_circles_are_findings(tmp_path: Path) -> None:
    file = make_entry(tmp_path / "dawn")
    folder = make_package(tmp_path)
    for link in (file, folder / "result_3.txt", folder.parents[2] / "systems" / "8xA1000.json"):
        link.unlink()
        link.symlink_to(link.name)
    report = check([tmp_path, tmp_path / "dawn"])
    assert [c.kind for c in report.checked].count("dawnbench-entry") == 1
    assert "LOG001" in errors(report.findings)
    assert len(collect([tmp_path]).results) == 2


def test_findings_of_one_rule_in_one_file_are_limited(tmp_path: Path) -> None:
    records = mlperf_records()
    place = records.index(find(records, "eval_accuracy"))
    odd = [record(records[place]["time_ms"], "eval_accuracy", "x", epoch_num=1)] * 500
    records[place:place] = odd
    (tmp_path / "one.log").write_text(as_mllog(records))
    found = [f for f in check([tmp_path]).findings if f.code == "EVA002"]
    assert len(found) == MOST_FINDINGS


def test_an_entry_is_checked(tmp_path: Path) -> None:
    file = make_entry(tmp_path)
    report = check([tmp_path])
    checked = [(c.path, c.kind, c.ok) for c in report.checked]
    assert checked == [(str(file), "dawnbench-entry", True)]
    assert [f.code for f in report.findings] == ["RUN010"]
    for given in (file, file.with_suffix(".tsv")):
        assert [c.path for c in check([given]).checked] == [str(file)]


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ("epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.5\t70\t92.9\n", "RUN009"),
        ("epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.5\t70\t92\n2\t0.4\t70\t93\n", "CLK001"),
        ("epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.5\t70\t930\n", "EVA002"),
    ],
)
def test_a_broken_entry_fails(table: str, code: str, tmp_path: Path) -> None:
    file = make_entry(tmp_path, table=table)
    report = check([tmp_path])
    assert code in errors(report.findings)
    assert not report.checked[0].ok
    assert {f.path for f in report.findings if f.code == code} == {str(file.with_suffix(".tsv"))}


def test_every_judge_has_a_rule_and_a_text() -> None:
    codes = {rule.code for rule in RULES}
    for judge in JUDGES:
        assert judge.code in codes
        assert re.search(r"\.$", judge.text), judge.code
    pairs = [(judge.code, judge.scope, judge.source) for judge in JUDGES]
    assert len(pairs) == len(set(pairs))
