"""How long `fourmin validate` takes, as a whole command, for the largest ledgers and histories.

    python benchmarks/validate_speed.py

Ledgers of 1.4 MB, near the most that is read, of many kinds, each in the folder of a campaign; and
a repository of 20 submissions whose base branch has 2,000 commits, with `--base`. Prints one JSON
object of seconds; exits with 1 where one is above the limit.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fourmin.base.canonical import sha256_hex
from fourmin.ledger import chain

LIMIT_SECONDS = 3.0
LEDGER_BYTES = chain.MAX_BYTES - (1 << 17)
COMMITS = 2_000
SUBMISSIONS = 20
DIGEST = "ab" * 32

Record = Callable[[int], tuple[str, dict[str, Any]]]
RECORDS: Mapping[str, Record] = {
    "intents": lambda i: ("run-intent", {"run": 1, "attempt": i % 9999 + 1, "seed": i}),
    "starts": lambda _: ("run-start", {"run": 1, "attempt": 1}),
    "restarts": lambda i: (
        "run-restart",
        {"run": 1, "attempt": 1, "restart": i % 9999 + 1, "events_bytes": 2**53 - 1,
         "events_sha256": DIGEST},
    ),
    "results": lambda _: (
        "run-result",
        {"run": 1, "attempt": 1, "status": "aborted", "events_sha256": DIGEST,
         "result_sha256": DIGEST},
    ),
    "seeds": lambda _: (
        "seeds-assigned",
        {"beacon": DIGEST, "registration": "self", "seeds": list(range(1000))},
    ),
    "openings": lambda _: ("campaign-open", {"campaign_sha256": DIGEST}),
    "after a close": lambda _: ("campaign-close", {"summary_sha256": DIGEST}),
    "after an abandonment": lambda _: ("campaign-abandon", {"reason": "\U0001f600 [" * 100}),
    "unknown fields": lambda i: ("run-start", {"run": 1, "attempt": 1, "more": [[], {}] * 40}),
    "fractions": lambda i: ("run-start", {"run": 1, "attempt": 1, "more": [1e-7 * i] * 400}),
    "long text": lambda _: ("campaign-open", {"campaign_sha256": "x" * 16_000}),
}  # fmt: skip
"""A well-formed chain of one record again and again, by what it is."""
PIECES = {
    "garbage": b"x\n",
    "empty lines": b"\n",
    "one long line": b"x",
    "long lines": b"[" + b"1," * 30_000 + b"1]\n",
    "brackets": b"[" * 20_000 + b"\n",
    "shallow brackets": b"[" + b"[]," * 5_000 + b"1]\n",
    "empty objects": b"{}\n",
    "records without chain": chain.encode(0, "run-start", 1, chain.GENESIS, {}) + b"\n",
    "carriage returns": chain.encode(0, "run-start", 1, chain.GENESIS, {}) + b"\r\n",
}
"""Bytes again and again."""


def chained(record: Record, before: bytes, size: int) -> bytes:
    """A ledger of `size` bytes that goes on after `before` with one record again and again."""
    lines = before.splitlines(keepends=True)
    previous, index = sha256_hex(lines[-1][:-1]), len(lines)
    time_ms: int = json.loads(lines[-1])["time_ms"]
    written = len(before)
    while written < size:
        kind, data = record(index)
        line = chain.encode(index, kind, time_ms, previous, data)
        previous, index = sha256_hex(line), index + 1
        lines.append(line + b"\n")
        written += len(line) + 1
    return b"".join(lines)


def ledgers(before: bytes, size: int = LEDGER_BYTES) -> Iterator[tuple[str, bytes]]:
    """Every kind of long ledger that goes on after `before`, by name."""
    opened = b"".join(before.splitlines(keepends=True)[:2])
    for name, record in RECORDS.items():
        yield name, chained(record, before if name == "after a close" else opened, size)
    for name, piece in PIECES.items():
        yield name, opened + piece * (size // len(piece))


def repository(root: Path, submission: Path, commits: int, submissions: int) -> None:
    """A git repository at `root`: `submissions` copies of a submitter's folder, and `commits`
    commits of which each changes a file beside them; `base` is the branch before a last one.
    """
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch", "main")
    for number in range(submissions):
        shutil.copytree(submission, root / "submissions" / f"lab-{number}")
    git(root, "add", "--all")
    stream = [
        f"commit refs/heads/main\ncommitter a <a@b.c> {1_700_000_000 + number} +0000\n"
        f"data 0\n{'from refs/heads/main^0' if number == 1 else ''}\n"
        f"M 100644 inline notes/{number % 50}\ndata {len(str(number))}\n{number}\n"
        for number in range(1, commits + 1)
    ]
    git(root, "commit", "--quiet", "--message", "submissions")
    git(root, "fast-import", "--quiet", data="\n".join(stream).encode())
    git(root, "reset", "--quiet", "--hard")


def git(root: Path, *arguments: str, data: bytes | None = None) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *identity, *arguments], cwd=root, input=data, check=True)


def seconds(*arguments: str | Path) -> float:
    """CPU time of a whole `fourmin validate` with its children, as the machine may be busy."""
    command = [sys.executable, "-m", "fourmin", "validate", *map(str, arguments)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    assert done.returncode in (0, 1), done.returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    submissions = Path(__file__).resolve().parents[1] / "submissions"
    (found, *_) = sorted(submissions.glob("*/*/*/*/ledger.jsonl"))
    submitter = found.relative_to(submissions).parts[0]
    taken: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        campaign = Path(folder) / found.parent.name
        shutil.copytree(found.parent, campaign)
        for name, data in ledgers(found.read_bytes()):
            (campaign / "ledger.jsonl").write_bytes(data)
            taken[f"ledger, {name}"] = round(seconds(campaign), 2)
        root = Path(folder) / "repository"
        repository(root, submissions / submitter, COMMITS, SUBMISSIONS)
        taken["base"] = round(seconds(root / "submissions", "--base", "main"), 2)
    print(json.dumps({"seconds": taken, "limit": LIMIT_SECONDS}, indent=1))
    return 0 if max(taken.values()) <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
