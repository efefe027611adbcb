"""Who is handed which step of an epoch, and what becomes of those that the dead had."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import torch

from fourmin.training.algorithms.counter import Counter, Done


def done(counter: Counter, worker: int, steps: Iterable[int], stale: int | None = 0) -> None:
    told = [Done(step, step / 2, 0.0, torch.tensor([step]), 8) for step in steps]
    counter.done(worker, told, stale)


def taken(counter: Counter, worker: int) -> list[int]:
    """What a worker takes ahead of its use."""
    found: list[int] = []
    while (step := counter.take(worker, len(found))) is not None:
        found.append(step)
    return found


def test_each_step_is_handed_out_once_and_told_in_its_order() -> None:
    counter = Counter(2)
    counter.begin(1, 5)
    order = [(worker, counter.take(worker, 0)) for worker in (1, 0, 0, 1, 1)]
    assert order == [(1, 0), (0, 1), (0, 2), (1, 3), (1, 4)]
    assert counter.take(0, 0) is None
    for worker, step in reversed(order):
        assert not counter.is_over(1)
        done(counter, worker, [step])
    assert counter.is_over(1)
    assert not counter.is_over(2)
    assert counter.more(0, 1, False) is False
    assert [(one.step, one.loss) for one in counter.told()] == [(n, n / 2) for n in range(5)]


def test_nobody_takes_more_ahead_than_a_fair_share_of_what_is_left() -> None:
    counter = Counter(4)
    counter.begin(1, 20)
    # With 4 taken 16 wait, of which each of four gets 4; a fifth is still one ahead of 4.
    assert [len(taken(counter, worker)) for worker in range(4)] == [5, 4, 3, 2]
    alone = Counter(1)
    alone.begin(1, 20)
    assert len(taken(alone, 0)) == 11


def test_what_a_dead_worker_had_is_handed_out_again_before_the_rest() -> None:
    counter = Counter(2)
    counter.begin(3, 6)
    assert [counter.take(1, 0) for _ in range(3)] == [0, 1, 2]
    done(counter, 1, [1])
    assert counter.take(0, 0) == 3
    assert counter.lost(1) == 1
    # Its last words come late: what it did is done again all the same.
    done(counter, 1, [2])
    assert counter.progress() == 1
    assert [counter.take(0, 0) for _ in range(4)] == [0, 2, 4, 5]
    done(counter, 0, [3, 0, 2, 4, 5])
    assert counter.is_over(3)
    assert (counter.again, counter.living) == (2, 1)
    assert counter.lost(0) == 0


def test_a_worker_waits_while_another_may_still_die() -> None:
    counter, said = Counter(2), []
    counter.begin(1, 1)
    assert counter.take(1, 0) == 0
    waiting = threading.Thread(target=lambda: said.append(counter.more(0, 1, False)))
    waiting.start()
    waiting.join(0.05)
    assert said == []
    counter.lost(1)
    waiting.join(5)
    assert said == [True]
    assert counter.take(0, 0) == 0


def test_who_holds_what_it_has_done_is_told_to_tell_it() -> None:
    counter = Counter(2)
    counter.begin(1, 2)
    assert [counter.take(0, 0), counter.take(0, 0)] == [0, 1]
    assert counter.more(0, 1, True) is None
    done(counter, 0, [0, 1], 3)
    assert counter.more(0, 1, True) is False
    assert counter.staleness == [3]


def test_in_a_warm_start_the_first_that_lives_has_all_steps() -> None:
    counter = Counter(3)
    counter.begin(1, 4, alone=True)
    assert counter.take(1, 0) is None
    assert taken(counter, 0) == [0, 1, 2]
    counter.lost(0)
    assert counter.take(2, 0) is None
    assert counter.take(1, 0) == 0
