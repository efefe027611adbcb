"""Workers for tests of the agent: they write what they are, and sleep or end with a code."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

NAMES = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "MASTER_ADDR",
    "OMP_NUM_THREADS",
    "RANK",
    "WORLD_SIZE",
    "TOLD",
)


def main() -> None:
    folder, code = Path(sys.argv[1]), int(sys.argv[2])
    # torch's own watch of a dead parent sends this, and a worker within a collective is deaf to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    said = {name: os.environ.get(name) for name in NAMES}
    said |= {"pid": os.getpid(), "forged": "torch._dynamo" in sys.modules}
    path = folder / f"worker-{said['RANK']}"
    path.with_suffix(".new").write_text(json.dumps(said))
    path.with_suffix(".new").rename(path)
    print("a line of a worker", flush=True)
    if code < 0:
        time.sleep(60)
    elif code:
        os._exit(code)
