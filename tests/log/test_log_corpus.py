"""The published logs of five MLPerf rounds, read and scored; skipped where they are not there."""

from __future__ import annotations

import csv
import math
import os
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline

REPOSITORY = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("FOURMIN_CORPUS", REPOSITORY.parent / "shared" / "corpus"))
ROUNDS = {"v0.7": 140, "v1.1": 200, "v2.0": 280, "v2.1": 205, "v4.0": 180}
ODD_BUT_KNOWN = {"missing-field", "wrong-type", "time-not-integer", "text-before-record"}

pytestmark = pytest.mark.skipif(
    not (CORPUS / "official_scores.csv").is_file(),
    reason=f"no corpus of published results at {CORPUS} (set FOURMIN_CORPUS)",
)


def logs(version: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(CORPUS / f"mlperf-training-{version}-resnet.tar.xz", "r|xz") as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if member.isfile() and name.match("results/*/resnet/result_*.txt"):
                file = archive.extractfile(member)
                assert file is not None
                yield str(name), file.read()


def check_round(version: str) -> None:
    """Reads every log of a round and computes every run set's mean of the middle runs."""
    minutes: dict[str, list[float]] = defaultdict(list)
    batches: dict[str, set[str]] = defaultdict(set)
    count = 0
    for name, data in logs(version):
        count += 1
        log = read_log(data)
        assert log.records, name
        assert set(log.problem_counts) <= ODD_BUT_KNOWN, (name, log.problems[:3])
        run = Timeline(log)
        converged = run.status == "success" and run.time_to_train_ms is not None
        assert run.evaluations or not converged, name
        assert all(len(run.values(key)) == 1 for key in run.hyperparameters), name
        run_set = str(PurePosixPath(name).parent)
        minutes[run_set].append((run.time_to_train_ms or 0) / 60_000 if converged else math.inf)
        batches[run_set].add(str(run.value("global_batch_size")))
    assert count == ROUNDS[version]

    with open(CORPUS / "official_scores.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["round"] == version]
    assert {row["dir"] for row in rows} == set(minutes)
    for row in rows:
        runs = sorted(minutes[row["dir"]])
        assert len(runs) == int(row["runs"])
        assert sum(map(math.isinf, runs)) == int(row["not_converged"]), row
        assert batches[row["dir"]] == set(row["global_batch_size"].split("/"))
        if row["unscaled_minutes"]:
            middle = runs[1:-1]
            mean = sum(middle) / len(middle)
            assert mean == pytest.approx(float(row["unscaled_minutes"]), abs=1e-6), row


def test_one_round() -> None:
    check_round("v4.0")


@pytest.mark.slow
@pytest.mark.parametrize("version", [version for version in ROUNDS if version != "v4.0"])
def test_every_other_round(version: str) -> None:
    check_round(version)
