"""MLPerf Training: packages as MLCommons publishes them, bare folders of logs, and single logs.

A package is `<org>/results/<system>/<benchmark>/result_<i>.txt` with `<org>/systems/<system>.json`;
v0.5 put its packages one folder deeper. A folder of logs that is laid out otherwise is a run set
without a system description.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from fourmin.log.reader import read_log
from fourmin.results.folder import MAX_FILE_BYTES
from fourmin.results.importers.files import head, read_somebodys
from fourmin.results.importers.model import (
    MLPERF,
    MLPERF_BENCHMARK,
    ForeignRun,
    ForeignSet,
    read_object,
)
from fourmin.results.importers.rounds import Round, round_of_path

MOST_RUNS = 500
"""Most logs that are read for one benchmark result."""
MOST_SNIFFED = 2000
"""Most text files of one folder that are looked into to see whether they are logs."""
OTHER_BENCHMARKS = (
    "bert", "dlrm", "dlrm_dcnv2", "flux1", "gnmt", "gpt3", "llama2_70b_lora", "llama31_405b",
    "llama31_8b", "maskrcnn", "minigo", "ncf", "retinanet", "rgat", "rnnt",
    "single_stage_detector", "ssd", "stable_diffusion", "transformer", "unet3d",
)  # fmt: skip
"""Folders of these names are not looked into, whatever logs they hold."""
_RESULT = re.compile(r"result_.*\.txt\Z", re.IGNORECASE)
_LOG_SUFFIXES = (".txt", ".log", ".out")
_SNIFFED = 64 * 1024
_TOKEN = re.compile(rb":::(?:MLLOG|MLL|MLPv0\.)")
_NUMBERS = re.compile(r"([0-9]+)")


def is_result_name(name: str) -> bool:
    """Whether a file is named as a package names its logs."""
    return _RESULT.match(name) is not None


def is_log(path: Path) -> bool:
    """Whether a file's beginning holds records of an event log."""
    return _TOKEN.search(head(path, _SNIFFED)) is not None


def logs_in(folder: Path, names: list[str]) -> list[str]:
    """Which of the files in a folder are logs: those of a package's names, or all that look so."""
    found = [name for name in names if is_result_name(name)]
    if not found:
        texts = [name for name in names if name.lower().endswith(_LOG_SUFFIXES)]
        found = [name for name in texts[:MOST_SNIFFED] if is_log(folder / name)]
    return sorted(found, key=_natural)


def in_package(folder: Path) -> bool:
    """Whether a folder lies where a package has a benchmark's logs: `results/<system>/` above."""
    return _place(folder).parent.parent.name == "results"


def _place(path: Path) -> Path:
    """Where a file or folder lies, without `.` and `..`, so that the folders above have names."""
    return Path(os.path.abspath(path))


def load_run(file: Path, path: str, of_round: Round | None = None) -> ForeignRun:
    """One log; whatever is wrong with it is among its problems."""
    if of_round is None:
        of_round = round_of_path(_place(file).parts[:-1])
    return ForeignRun(MLPERF, path, read_somebodys(file, MAX_FILE_BYTES, read_log), of_round)


def load_set(folder: Path, path: str, names: list[str]) -> ForeignSet:
    """The logs `names` in a folder as one run set; another benchmark's are not read."""
    place = _place(folder)
    packaged = in_package(folder)
    of_round = round_of_path(place.parts)
    name = place.name.lower()
    benchmark = name if packaged or name in OTHER_BENCHMARKS else ""
    if benchmark.startswith(MLPERF_BENCHMARK):
        benchmark = MLPERF_BENCHMARK
    system = place.parent.name if packaged else place.name
    found = ForeignSet(MLPERF, path, benchmark, of_round=of_round, system=system)
    if packaged:
        found.submitter = place.parents[2].name
    if benchmark not in ("", MLPERF_BENCHMARK):
        return found
    if len(names) > MOST_RUNS:
        found.odd.append((path, f"{len(names)} logs; only {MOST_RUNS} were read"))
    found.runs = tuple(
        load_run(folder / name, os.path.join(path, name), of_round) for name in names[:MOST_RUNS]
    )
    if not packaged:
        named = {run.benchmark for run in found.runs if run.benchmark}
        ours = not named or MLPERF_BENCHMARK in named
        found.benchmark = MLPERF_BENCHMARK if ours else min(named)
        found.submitter = found.runs[0].submitter if found.runs else ""
    _read_scaling(found, folder, path)
    if packaged:
        _read_description(found, folder)
    return found


def _read_description(found: ForeignSet, folder: Path) -> None:
    found.described = True
    file = _place(folder).parents[2] / "systems" / f"{found.system}.json"
    if not os.path.lexists(file):
        return
    found.description_path = f"systems/{found.system}.json"
    found.description = read_object(found, file, found.description_path)


def _read_scaling(found: ForeignSet, folder: Path, path: str) -> None:
    file = folder / "scaling.json"
    if not os.path.lexists(file):
        return
    found.scaling_path = os.path.join(path, "scaling.json")
    found.scaling_factor = (read_object(found, file, found.scaling_path) or {}).get(
        "scaling_factor"
    )


def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key by which result_10 comes after result_9."""
    return tuple(
        (0, int(part)) if part.isdecimal() and part.isascii() and len(part) < 19 else (1, part)
        for part in _NUMBERS.split(name)
    )
