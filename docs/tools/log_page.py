"""Writes docs/log.md: the keys of the event log, from the words beside them in fourmin.log.keys."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from fourmin.log import keys

PAGE = Path(__file__).resolve().parents[1] / "log.md"
HEAD = """# The event log

`run-<i>/events.log` is written by rank 0 in MLPerf's format, a record a line:

```
:::MLLOG {"namespace": "", "time_ms": 1767225600000, "event_type": "INTERVAL_START",
          "key": "run_start", "value": null, "metadata": {"file": "...", "lineno": 1,
          "monotonic_ms": 1234.5}}
```

(on one line). `time_ms` is the wall clock in milliseconds since 1970; `monotonic_ms` in the
metadata is the monotonic clock; of the two the longer time counts ([how](restarts.md#the-clock)).
Keys that MLPerf does not know have the namespace `fourmin`. An interval has a record at each end.
`fourmin run --json` prints each record as it is written.

Written by `make docs` from `fourmin/log/keys.py`. Beside these, each optimizer logs what it reads
from the configuration, under MLPerf's keys `opt_*`, `lars_*` and `sgd_*`.
"""


def page() -> str:
    parts = [HEAD]
    for heading, rows in _sections():
        parts += [f"## {heading}\n", "| key | namespace | meaning |\n|---|---|---|"]
        parts += [f"| `{key}` | {space} | {meaning} |" for key, space, meaning in rows]
        parts.append("")
    return "\n".join(parts)


def _sections() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Each heading (a comment of the source) with key, namespace and meaning of its keys."""
    source = Path(keys.__file__).read_text()
    headings = {
        number: text
        for number, line in enumerate(source.splitlines(), 1)
        for text in re.findall(r"^# (.*?)[.:]?$", line)
    }
    found: dict[str, list[tuple[str, str, str]]] = {}
    body = ast.parse(source).body
    for statement, following in pairwise(body):
        if not isinstance(statement, ast.Assign) or not isinstance(following, ast.Expr):
            continue
        value = getattr(keys, ast.unparse(statement.targets[0]))
        above = [number for number in headings if number < statement.lineno]
        if isinstance(value, str) and above:
            space = keys.FOURMIN_NAMESPACE if value in keys.FOURMIN_KEYS else ""
            meaning = " ".join(ast.literal_eval(following.value).split())
            found.setdefault(headings[max(above)], []).append((value, space, meaning))
    yield from found.items()


if __name__ == "__main__":
    PAGE.write_text(page())
