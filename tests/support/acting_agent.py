"""A forge without torch: its agents are `python -c $ACTOR ARGUMENTS`, and have no workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fourmin.launch.agent


def act_as(code: str) -> None:
    """What this process, or one that it starts, takes for torchrun's agent from now on."""
    fourmin.launch.agent.AGENT_MODULE = "acting_agent"
    os.environ.update(ACTOR=code, PYTHONPATH=str(Path(__file__).parent))


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        with open(request["output"], "wb") as output:
            code = subprocess.run(
                [sys.executable, "-c", os.environ["ACTOR"], *request["arguments"]],
                env={**os.environ, **request["variables"]}, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, check=False,
            ).returncode  # fmt: skip
        print(code, flush=True)


if __name__ == "__main__":
    main()
