"""torchrun's agent, whose workers are forked with all that they import:
`python -m fourmin.training.agent ARGUMENTS`, as torchrun takes them.

Without arguments it is the forge of a command (`launch.agent.Forge`): it imports what training
needs, and for each line of its input it forks an agent and says with which code that ended. CUDA
is never touched here, since it does not survive a fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import select
import signal
import sys
import traceback
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import elastic_launch
from torch.distributed.run import config_from_args, parse_args

from fourmin.launch.agent import bind_process, control_process
from fourmin.launch.control import ORPHANED

_CHILD_SUBREAPER = 36  # of linux/prctl.h


def main() -> None:
    """Be one agent, or the forge of many."""
    if sys.argv[1:]:
        sys.exit(run_agent(sys.argv[1:]))
    with suppress(Exception):  # the workers meet the same, and tell the command
        importlib.import_module("fourmin.training.session")
        # torch's optimizers and checkpoints import the compiler at their first call.
        importlib.import_module("torch._dynamo")
    # What is imported stays shared with all that is forked.
    gc.freeze()
    _serve()


def run_agent(arguments: Sequence[str]) -> int:
    """Start the workers and wait for their end; the agent's exit code."""
    args = parse_args(arguments)
    if args.standalone:
        # Else workers wait for this host's own name to have an address.
        args.rdzv_backend, args.rdzv_endpoint, args.local_addr = "c10d", "localhost:0", "localhost"
        args.rdzv_id = str(uuid.uuid4())
    config, _, _ = config_from_args(args)
    # Where something that was imported has asked CUDA after all, workers import anew.
    config.start_method = "spawn" if torch.cuda._is_in_bad_fork() else "fork"
    # What became of the workers is told by the command.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    work = importlib.import_module(args.training_script).main
    sys.argv = [args.training_script, *args.training_script_args]
    try:
        elastic_launch(config, work)()
    except ChildFailedError:
        return 1
    return 0


def _serve() -> None:
    """Fork an agent for each line of the input, one at a time."""
    control_process(_CHILD_SUBREAPER, 1)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    while line := sys.stdin.readline():
        agent = os.fork()
        if not agent:
            _become_agent(json.loads(line))
        while not (status := _reap(agent)):
            ready, _, _ = select.select([sys.stdin, reading], [], [])
            if sys.stdin in ready:
                os._exit(ORPHANED)  # nobody asks while an agent runs: the command has gone
            os.read(reading, 1 << 12)
        print(os.waitstatus_to_exitcode(status[0]), flush=True)  # noqa: T201 - the answer


def _reap(agent: int) -> list[int]:
    """Let go of what has died below; the status of the agent, where that is among it."""
    found = []
    with suppress(ChildProcessError):
        while (died := os.waitpid(-1, os.WNOHANG))[0]:
            found += [died[1]] if died[0] == agent else []
    return found


def _become_agent(request: Mapping[str, Any]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    bind_process("fourmin-agent")
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for standard, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(file, standard)
    os.environ.update(request["variables"])
    code = 1
    try:
        code = run_agent(request["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
