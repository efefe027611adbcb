"""MLPerf's and DAWNBench's files become runs and run sets of this project's model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from foreign_factory import (
    STARTS_MS,
    as_mllog,
    make_entry,
    make_package,
    mlperf_records,
    system_json,
    text_of,
)

from fourmin.results.importers import dawnbench, mlperf
from fourmin.results.importers.model import ForeignSet
from fourmin.results.importers.rounds import ROUNDS, round_of_path
from fourmin.results.importers.tensors import TENSORS

ROUND_NAMES = sorted(STARTS_MS)


def load(folder: Path) -> ForeignSet:
    return mlperf.load_set(folder, str(folder), mlperf.logs_in(folder, os.listdir(folder)))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("of_round", ROUND_NAMES)
def test_a_set_of_every_round_is_read_and_scored(
    of_round: str, named: bool, tmp_path: Path
) -> None:
    found = load(make_package(tmp_path, of_round, named=named, converges=True))
    assert found.round is not None
    assert found.round.name == of_round
    assert (found.submitter, found.system, found.division) == ("ACME", "8xA1000", "closed")
    assert (found.chips, found.global_batch_size) == (16, 3200)
    assert [run.facts.status for run in found.runs] == ["converged"] * 5
    # 35 epochs with 2 events of 20,000 ms and more, 9 evaluations: counted here by hand.
    minutes = []
    for run in range(5):
        records = mlperf_records(of_round, run)
        times = {item["key"]: item["time_ms"] for item in records}
        minutes.append((times["run_stop"] - times["run_start"]) / 60_000)
    assert found.score.minutes == pytest.approx(sum(sorted(minutes)[1:4]) / 3, abs=1e-6)
    assert [run.facts.epochs for run in found.runs] == [35] * 5
    scaled = found.scaled_minutes
    assert scaled is not None
    # Batch 3200 lies between the references at 1632 and 3264.
    mean = 35 + (3200 - 1632) / (3264 - 1632) * (457 / 13 - 35)
    factor = mean / 35 if of_round >= "v2.1" else 1
    assert scaled / found.score.minutes == pytest.approx(factor, abs=1e-12)


def test_rounds_are_told_by_the_nearest_folder() -> None:
    names = {
        ("data", "v4.0", "ACME", "results", "x"): "v4.0",
        ("training_results_v3.1", "ACME"): "v3.1",
        ("training_4.0.0", "logs"): "v4.0",
        ("v2.0", "v2.1", "ACME"): "v2.1",
        ("mlperf-training-1.1",): "v1.1",
        ("training_results_v0.5", "v0.5.0", "acme"): "v0.5",
    }
    for folders, name in names.items():
        found = round_of_path(folders)
        assert found is not None
        assert found.name == name
    for folders in (("v9.9",), ("ngc21.09",), ("gpu-v100-8-TF2.0",), ("8xA100",), ()):
        assert round_of_path(folders) is None


def test_rounds_are_in_order() -> None:
    assert [known.last_day for known in ROUNDS] == sorted(known.last_day for known in ROUNDS)
    assert len(TENSORS) == 161


def test_one_run_that_did_not_converge_is_dropped_and_two_leave_no_result(tmp_path: Path) -> None:
    def fail(first: int) -> ForeignSet:
        def edit(run: int, records: list[dict[str, object]]) -> None:
            if run < first:
                records[:] = mlperf_records(run=run, converges=False)

        return load(make_package(tmp_path / str(first), edit=edit))

    assert fail(1).score.minutes is not None
    assert fail(2).score.minutes is None
    assert fail(2 + 1).scaled_minutes is None


def test_no_reference_means_no_scaling(tmp_path: Path) -> None:
    found = load(make_package(tmp_path, batch=131_072))
    assert found.convergence.reference is None
    assert found.scaled_minutes == found.score.minutes


def test_open_results_have_no_reference(tmp_path: Path) -> None:
    found = load(make_package(tmp_path, division="open", epochs=27))
    assert found.factor == 1.0
    assert found.scaled_minutes == found.score.minutes


def test_too_few_epochs_give_no_scaled_result(tmp_path: Path) -> None:
    found = load(make_package(tmp_path, epochs=31))
    assert found.score.minutes is not None
    assert found.scaled_minutes is None
    before = load(make_package(tmp_path / "before", "v2.0", epochs=31))
    assert before.scaled_minutes == before.score.minutes


def test_a_bare_folder_is_a_set_and_result_names_come_first(tmp_path: Path) -> None:
    for run in range(11):
        (tmp_path / f"run{run}.log").write_text(as_mllog(mlperf_records(run=run)))
    (tmp_path / "notes.txt").write_text("nothing of interest\n")
    names = mlperf.logs_in(tmp_path, os.listdir(tmp_path))
    assert names == [f"run{run}.log" for run in range(11)]
    found = load(tmp_path)
    assert (found.benchmark, found.submitter, found.described) == ("resnet", "ACME", False)
    (tmp_path / "result_0.txt").write_text(as_mllog(mlperf_records()))
    assert mlperf.logs_in(tmp_path, os.listdir(tmp_path)) == ["result_0.txt"]


def test_another_benchmark_is_recognised_and_not_read(tmp_path: Path) -> None:
    folder = make_package(tmp_path)
    other = folder.parent / "bert"
    folder.rename(other)
    found = load(other)
    assert (found.benchmark, bool(found.unjudged), found.runs) == ("bert", True, ())


def test_an_epoch_that_is_logged_before_it_ends_makes_no_throughput(tmp_path: Path) -> None:
    def hurry(_run: int, records: list[dict[str, object]]) -> None:
        """Epochs end when they are queued; only blocks and evaluations wait for the device."""
        started = 0.0
        for item in records:
            if item["key"] == "epoch_start":
                started = float(item["time_ms"])  # type: ignore[arg-type]
            elif item["key"] == "epoch_stop":
                item["time_ms"] = started + 10

    honest = load(make_package(tmp_path / "honest")).images_per_second
    hurried = load(make_package(tmp_path / "hurried", edit=hurry)).images_per_second
    assert honest == pytest.approx(1_281_167 / 20, rel=0.01)
    assert hurried == pytest.approx(honest, rel=0.01)


def test_scaling_json_is_kept_and_never_used(tmp_path: Path) -> None:
    folder = make_package(tmp_path)
    plain = load(folder).scaled_minutes
    (folder / "scaling.json").write_text('{"scaling_factor": 3.0}')
    found = load(folder)
    assert found.scaling_factor == 3.0
    assert found.scaled_minutes == plain


@pytest.mark.parametrize(
    ("changes", "chips"),
    [
        ({}, 16),
        ({"number_of_nodes": 1.0, "accelerators_per_node": 4}, 4),
        ({"number_of_nodes": " 3 "}, 24),
        ({"number_of_nodes": None, "number of nodes": "3"}, 24),
        ({"accelerators_per_node": "0", "host_processors_per_node": "2"}, 4),
        ({"accelerators_per_node": "eight"}, None),
        ({"accelerators_per_node": True}, None),
        ({"number_of_nodes": None}, None),
        ({"number_of_nodes": "9" * 400}, None),
        ({"number_of_nodes": 1e300}, None),
    ],
)
def test_chips_come_from_the_description(
    changes: dict[str, object], chips: int | None, tmp_path: Path
) -> None:
    folder = make_package(tmp_path, runs=1)
    file = folder.parents[2] / "systems" / "8xA1000.json"
    file.write_text(json.dumps(system_json(**changes)))
    assert load(folder).chips == chips


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xef\xbb\xbf{}", b'{"a": 1, "a": 2}', b"{" * 100_000, b"\xff", b'{"a": NaN}'],
)
def test_broken_json_beside_the_logs_costs_only_itself(content: bytes, tmp_path: Path) -> None:
    folder = make_package(tmp_path)
    (folder.parents[2] / "systems" / "8xA1000.json").write_bytes(content)
    (folder / "scaling.json").write_bytes(content)
    found = load(folder)
    assert found.chips is None
    assert found.score.minutes is not None
    assert len(found.odd) == (0 if content == b"[]" else 2)


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        ('{"success": true}', "converged"),
        ('{"success": "true"}', "converged"),
        ('{"success": false}', "not-converged"),
        ('{"success": "false"}', "not-converged"),
        ("", "converged"),
    ],
)
def test_v05_said_success_in_several_ways(stop: str, status: str, tmp_path: Path) -> None:
    text = text_of("v0.5", mlperf_records("v0.5"))
    assert text.count(': {"success": true}') == 1
    (tmp_path / "x.log").write_text(text.replace(': {"success": true}', f": {stop}"))
    assert mlperf.load_run(tmp_path / "x.log", "x.log").facts.status == status


def test_v06_named_the_sample_counts_otherwise(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(text_of("v0.6", mlperf_records("v0.6")))
    timeline = mlperf.load_run(tmp_path / "x.log", "x.log").timeline
    assert (timeline.value("train_samples"), timeline.value("eval_samples")) == (1_281_167, 50_000)


def test_links_and_pipes_are_not_opened(tmp_path: Path) -> None:
    folder = make_package(tmp_path, runs=3)
    (folder / "result_1.txt").unlink()
    (folder / "result_1.txt").symlink_to(folder / "result_0.txt")
    (folder / "result_2.txt").unlink()
    os.mkfifo(folder / "result_2.txt")
    found = load(folder)
    assert [run.log.problem_counts for run in found.runs] == [{}, *[{"unreadable": 1}] * 2]
    assert [run.facts.status for run in found.runs[1:]] == ["aborted"] * 2


@pytest.mark.parametrize("of_round", ["v0.5", "v0.6", "v4.0"])
def test_a_log_is_read_as_people_wrote_it(of_round: str, tmp_path: Path) -> None:
    plain = text_of(of_round, mlperf_records(of_round))
    prefixed = "".join(f"12: node-3 {line}\n" for line in plain.splitlines())
    crlf = plain.replace("\n", "\r\n")
    noisy = b"\xff\xfe garbage \x00\n" + plain.encode() + b':::MLLOG {"namespace": "", "ti'
    expected = None
    for number, content in enumerate((plain.encode(), prefixed.encode(), crlf.encode(), noisy)):
        file = tmp_path / f"{number}.txt"
        file.write_bytes(content)
        run = mlperf.load_run(file, str(file))
        facts = {
            name: getattr(run.facts, name) for name in ("status", "minutes", "epochs", "quality")
        }
        expected = expected or facts
        assert facts == expected
        assert facts["status"] in ("converged", "not-converged")
        assert facts["minutes"]


def test_an_entry_scores_at_the_first_row_with_93_percent(tmp_path: Path) -> None:
    found = dawnbench.load_entry(make_entry(tmp_path), "entry.json")
    assert found.score.minutes == pytest.approx(36.0)  # row 6: 0.6 hours, 93.0
    run = found.runs[0]
    assert (run.facts.status, run.facts.epochs, run.facts.quality) == ("converged", 6, 0.93)
    assert (found.submitter, found.system, found.odd) == ("ACME", "8 * A1000", [])


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 2, 3), (3, 2, 1, 0)])
def test_columns_may_stand_in_any_order_and_lines_end_in_any_way(
    order: tuple[int, ...], line_end: str, tmp_path: Path
) -> None:
    rows = [["epoch", "hours", "top1Accuracy", "top5Accuracy"]]
    rows += [[str(e), str(e / 4), "70", str(92 + e / 4)] for e in (2, 3, 4, 5)]
    table = line_end.join("\t".join(row[place] for place in order) for row in rows) + line_end
    file = make_entry(tmp_path, table=table)
    assert dawnbench.entries_in(tmp_path, os.listdir(tmp_path)) == [file.name]
    found = dawnbench.load_entry(file, str(file))
    assert found.score.minutes == pytest.approx(60.0)
    assert found.runs[0].facts.epochs == 4


@pytest.mark.parametrize(
    "table",
    [
        "",
        "hours\n",
        "epoch\thours\ttop1Accuracy\ttop5Accuracy",
        "epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\tx\ty\tz\n",
        "epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\tnan\t1\t99\n1\t1e999\t1\t99\n",
        "epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\n\n\n",
    ],
)
def test_a_table_that_gives_no_result(table: str, tmp_path: Path) -> None:
    found = dawnbench.load_entry(make_entry(tmp_path, table=table), "entry.json")
    assert found.score.minutes is None
    assert found.runs[0].facts.status != "converged"
