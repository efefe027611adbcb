"""Work spread over processes, a bounded number of pieces at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from fourmin.base.errors import FourminError
from fourmin.base.processes import end_with_the_command

Progress = Callable[[int, int], None]
"""Called with the number of images done and the number of images."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def unfollowed(done: int, total: int) -> None:
    """Progress that nobody looks at."""


def spread(
    task: Callable[[Any, Piece], Result],
    shared: Any,
    pieces: Iterable[Piece],
    workers: int,
    purpose: str,
) -> Iterator[Result]:
    """`task(shared, piece)` of every piece, as each is done, by `workers` processes.

    With one worker the work is done here. `purpose` names it in the error when a process was
    killed (FourminError).
    """
    waiting_pieces = iter(pieces)
    if workers == 1:
        for piece in waiting_pieces:
            yield task(shared, piece)
        return
    # Spawned, not forked: the caller may run threads (a progress bar does).
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=end_with_the_command
    )
    try:
        # A bounded number in flight: a million paths are not pickled at once.
        waiting: set[Future[Result]] = {
            pool.submit(task, shared, piece) for piece in islice(waiting_pieces, 4 * workers)
        }
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            waiting |= {
                pool.submit(task, shared, piece) for piece in islice(waiting_pieces, len(finished))
            }
            for future in finished:
                yield future.result()
    except BrokenProcessPool as error:
        raise FourminError(
            f"{purpose} broke off",
            "one of its worker processes was killed, perhaps for want of memory",
            "try again with fewer: --workers N",
        ) from error
    except BaseException:
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
