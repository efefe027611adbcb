"""What a workflow or an action runs."""

from __future__ import annotations

import re
import textwrap


def scripts(text: str) -> list[str]:
    """The shell scripts in a YAML file, from its `run: |` blocks."""
    found = []
    for match in re.finditer(r"^( +)run: \|\n", text, re.MULTILINE):
        indent = len(match.group(1))
        block = []
        for line in text[match.end() :].splitlines():
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            block.append(line)
        found.append(textwrap.dedent("\n".join(block)))
    return found
