"""Lines of code, counted by tokens: without comments, docstrings and blank lines."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """How many lines of `source` hold a token that is neither comment nor docstring.

    Every string that stands as a statement of its own counts as a docstring, wherever it is.
    """
    strings = {
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _SILENT or (token.type == tokenize.STRING and token.start in strings):
            continue
        lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def count(folder: Path) -> dict[Path, int]:
    """The code lines of every module below `folder`, by path relative to it."""
    return {
        path.relative_to(folder): code_lines(path.read_text("utf-8"))
        for path in sorted(folder.rglob("*.py"))
    }


if __name__ == "__main__":
    counted = count(Path(sys.argv[1] if len(sys.argv) > 1 else "fourmin"))
    for module, lines in sorted(counted.items(), key=lambda item: -item[1])[:10]:
        print(f"{lines:6} {module}")
    print(f"{sum(counted.values()):6} in {len(counted)} modules")
