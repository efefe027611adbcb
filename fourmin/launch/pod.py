"""What every pod of a TrainJob runs: the first becomes `fourmin run`, the others join it.

    python -m fourmin.launch.pod <options of fourmin run>

Kubeflow's runtime says in torchrun's own variables which pod is the first and where it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

PORT = 29401
"""Where the command listens; the runtime's own 29400 stays free for torchrun."""


def pod_command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    rank = environment.get("PET_NODE_RANK") or environment.get("JOB_COMPLETION_INDEX") or "0"
    master = environment.get("PET_MASTER_ADDR", "127.0.0.1")
    if rank == "0":
        place = ["--launcher", "torchrun", "--address", f"{master}:{PORT}"]
        return [sys.executable, "-m", "fourmin", "run", *arguments, *place]
    node = ["--index", rank, *(one for one in arguments if one.startswith("--timeout="))]
    return [sys.executable, "-m", "fourmin.launch.node", f"{master}:{PORT}", *node]


def main() -> None:
    command = pod_command(sys.argv[1:], os.environ)
    # What the runtime set for a torchrun of its own would speak to ours as well.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PET_")}
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    main()
