"""How long validating a corpus of published results takes, against reading its log lines as JSON.

    FOURMIN_CORPUS=../shared/corpus python benchmarks/validate_corpus.py

The corpus holds archives `mlperf-training-<round>-resnet.tar.xz` (or is a folder of results
already). Both parts run in this one process; CPU time is taken, the best of three, so that other
work on the machine counts little. Prints one JSON object; exits with 1 where the ratio is above
the limit.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LIMIT = 3.0
REPEATS = 3
TOKEN = ":::MLLOG "


def unpack(corpus: Path, into: Path) -> Path:
    """The folder with the results; archives are unpacked first."""
    archives = sorted(corpus.glob("mlperf-training-*.tar.xz"))
    for archive in archives:
        with tarfile.open(archive) as file:
            if hasattr(tarfile, "data_filter"):
                file.extractall(into, filter="data")
            else:  # Python 3.10 before its twelfth release
                file.extractall(into)
    return into if archives else corpus


def read_lines(logs: list[Path]) -> int:
    """The baseline: every log's bytes, every line with a record through `json.loads`."""
    records = 0
    for log in logs:
        for line in log.read_bytes().decode("utf-8", "replace").splitlines():
            start = line.find(TOKEN)
            if start >= 0:
                json.loads(line[start + len(TOKEN) :])
                records += 1
    return records


def best_seconds(work: Callable[[], object]) -> float:
    """CPU time of the fastest of three."""
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def main() -> int:
    from fourmin.rules.engine import check

    repository = Path(__file__).resolve().parents[1]
    corpus = Path(os.environ.get("FOURMIN_CORPUS", repository.parent / "shared" / "corpus"))
    if not corpus.is_dir():
        sys.stderr.write(f"no corpus at {corpus}; set FOURMIN_CORPUS\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        root = unpack(corpus, Path(folder))
        logs = sorted(root.glob("v*/*/results/*/resnet/result_*.txt"))
        records = read_lines(logs)
        report = check([root])
        baseline = best_seconds(lambda: read_lines(logs))
        validation = best_seconds(lambda: check([root]))
    ratio = validation / baseline
    print(
        json.dumps(
            {
                "logs": len(logs),
                "records": records,
                "findings": len(report.findings),
                "baseline_seconds": round(baseline, 3),
                "validate_seconds": round(validation, 3),
                "ratio": round(ratio, 3),
                "limit": LIMIT,
            }
        )
    )
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
