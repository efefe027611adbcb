"""Hidden bytes: what a rule takes for hidden is nothing that the package itself writes."""

from __future__ import annotations

import ast
from pathlib import Path

from fourmin.log import keys
from fourmin.rules.hidden import _METADATA

PACKAGE = Path(__file__).resolve().parents[2] / "fourmin"
OF_THE_WRITER = {"namespace"}
"""What `point`, `start` and `end` of the writer take beside metadata."""


def test_all_metadata_that_is_written_is_known() -> None:
    written = {
        keyword.arg
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("point", "start", "end")
        and ast.unparse(call.func.value).endswith("log")
        for keyword in call.keywords
    }
    assert {"epoch_num", "boot", "files", "bytes", "correct_count"} <= written
    assert written - OF_THE_WRITER <= _METADATA
    assert {keys.FILE, keys.LINENO, keys.MONOTONIC_MS} <= _METADATA
