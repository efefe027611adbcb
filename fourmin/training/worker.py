"""One worker process: torchrun's agent forks it (`fourmin.training.agent`)."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.mishaps import LASTING, explained, frames
from fourmin.launch.agent import bind_process
from fourmin.launch.control import ControlClient
from fourmin.launch.job import JOB_VARIABLE, Job
from fourmin.training.algorithms.child import fork_worker

PEER_SECONDS = 0.2
"""How long a worker waits before it tells of a collective that failed. A peer that died is mostly
why, and its line to the command may be closed a moment after those to its peers."""


def main() -> None:
    """Take part in the run that FOURMIN_JOB names; a failure is told to the command."""
    bind_process(f"fourmin-r{os.environ['RANK']}")
    job = Job.read(Path(os.environ[JOB_VARIABLE]))
    child = fork_worker(job)
    control = ControlClient(job.control_socket, int(os.environ["RANK"]))
    try:
        # Imported here so that the line to the command stands before torch is loaded, and a
        # broken installation is told like any other failure.
        from fourmin.training.session import take_part

        control.imported()
        take_part(job, control, child)
    except FourminError as error:
        from fourmin.training.comm.base import CommunicationError

        told = "\n".join(p for p in (error.why, error.next_step) if p)
        # A peer may have died, or a link; anything else would come out the same again.
        final = not isinstance(error, CommunicationError)
        if not final:
            time.sleep(PEER_SECONDS)
        control.fail(error.what, told, final=final)
        _leave()
    except BaseException as error:
        traceback.print_exc()
        if isinstance(error, OSError) and error.errno in LASTING:
            known = explained(error)
            control.fail(f"{known.what}: {known.why}", known.next_step, final=False, lasting=True)
        else:
            control.fail(f"{type(error).__name__}: {error}", frames(error), final=False)
        _leave()
    control.finish()


def _leave() -> None:
    """End without running finalizers: a dead peer can hang those of torch's process group."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
