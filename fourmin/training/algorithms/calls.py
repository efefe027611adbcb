"""Calls from one process of a run to objects in another, by torch.distributed.rpc."""

from __future__ import annotations

from typing import Any, Protocol

from torch.distributed import rpc
from torch.futures import Future

_SPARE_THREADS = 8
_served: dict[str, Any] = {}
"""What this process answers for, by name."""


class Call(Protocol):
    """Calls `method` of what the host of a rank serves under a name, and waits for the answer."""

    def __call__(self, host: int, name: str, method: str, *arguments: Any) -> Any: ...


def join(rank: int, hosts: int, seconds: float, *, worker: bool) -> None:
    """Join the hosts of a run and their workers, once all of them are there.

    Waits at most `seconds`. Workers may wait in calls, each in a thread of a host.
    """
    name = worker_name(rank) if worker else host_name(rank)
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=hosts + _SPARE_THREADS, rpc_timeout=seconds
    )
    place = hosts + rank if worker else rank
    rpc.init_rpc(name, rank=place, world_size=2 * hosts, rpc_backend_options=options)


def leave() -> None:
    """Stop to answer; others may be gone already."""
    rpc.shutdown(graceful=False)
    _served.clear()


def serve(name: str, what: Any) -> None:
    """Answer calls of the methods of `what`, from now on."""
    _served[name] = what


def call(host: int, name: str, method: str, *arguments: Any) -> Any:
    return start(host_name(host), name, method, *arguments).wait()


def start(process: str, name: str, method: str, *arguments: Any) -> Future[Any]:
    """The same of any process, without waiting."""
    # Without a limit: a host that has died ends all processes of the run.
    future: Future[Any] = rpc.rpc_async(
        process, _answer, args=(name, method, *arguments), timeout=0
    )
    return future


def _answer(name: str, method: str, *arguments: Any) -> Any:
    return getattr(_served[name], method)(*arguments)


def host_name(rank: int) -> str:
    return f"host{rank}"


def worker_name(rank: int) -> str:
    return f"worker{rank}"
