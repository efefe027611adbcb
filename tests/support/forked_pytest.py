"""Runs pytest again and again, each time in a fork of a process that has imported torch already.

For many short runs on copies of the package, which is not imported before the fork. Reads a JSON
object a line, `{"folder": ..., "tests": [...]}`: the folder holds the package, is the working
folder, and takes pytest's output (`output.txt`). Answers a line with the exit code.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

import pytest

IMPORTED = ("hypothesis", "numpy", "torch", "torch.distributed")
MOST_SECONDS = 900


def run(folder: Path, tests: list[str]) -> int:
    """Never returns: the process ends with pytest's exit code."""
    signal.alarm(MOST_SECONDS)
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path.insert(0, str(folder))
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    os._exit(pytest.main([*options, f"--basetemp={folder / 'temporary'}", *tests]))


def main() -> None:
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    for name in IMPORTED:
        import_module(name)
    assert not any(name.split(".")[0] == "fourmin" for name in sys.modules)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            run(Path(request["folder"]), request["tests"])
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
