"""Portions of the data, handed to whoever is free (Dean et al. 2012, section 4.2).

A portion is known by its number: which samples it has, and in which order portions are added, never
depends on who did what; so neither does the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

COPIES = 2
"""How many workers usually may have the same portion."""


class Portions(Generic[T]):
    """Who has which portion, and what was answered first for each."""

    def __init__(self, count: int, copies: int = COPIES) -> None:
        """`copies`: how many workers may have the same one."""
        self.waiting = list(range(count))
        """Those that nobody has, the next one first."""
        self._copies = copies
        self._holders: dict[int, set[int]] = {}
        """Of each portion that is out, the one longest out first."""
        self._answers: dict[int, T] = {}
        self._count = count

    @property
    def answered(self) -> int:
        return len(self._answers)

    @property
    def complete(self) -> bool:
        return self.answered == self._count

    @property
    def answers(self) -> list[T]:
        """Of all portions, in their order."""
        return [self._answers[number] for number in range(self._count)]

    def give(self, worker: int) -> int | None:
        """A portion for a worker that is free; None where there is nothing for it now.

        After all are out, the one that is longest out is given a second time.
        """
        if self.waiting:
            number = self.waiting.pop(0)
            self._holders[number] = {worker}
            return number
        for number, holders in self._holders.items():
            if len(holders) < self._copies and worker not in holders:
                holders.add(worker)
                return number
        return None

    def answer(self, number: int, answer: T) -> bool:
        """Take an answer; whether it is the first for its portion, and so counts."""
        if number in self._answers:
            return False
        self._answers[number] = answer
        self._holders.pop(number, None)
        if number in self.waiting:  # its worker was taken for dead
            self.waiting.remove(number)
        return True

    def lose(self, worker: int) -> int:
        """A worker is gone: what nobody else has is given again, before all else. Returns how many
        these are.
        """
        for holders in self._holders.values():
            holders.discard(worker)
        again = sorted(number for number, holders in self._holders.items() if not holders)
        for number in again:
            del self._holders[number]
        self.waiting[:0] = again
        return len(again)


class OrderedSum(Generic[T]):
    """Adds what comes in any order, each number once, in the order of the numbers from 0 on."""

    def __init__(self, total: T, add: Callable[[T, T], object]) -> None:
        """`add` changes its first argument."""
        self.total = total
        self.added = 0
        self._add = add
        self._early: dict[int, T] = {}

    def put(self, number: int, term: T) -> None:
        """Take a term; one that is there already changes nothing."""
        if number >= self.added:
            self._early.setdefault(number, term)
        while self.added in self._early:
            self._add(self.total, self._early.pop(self.added))
            self.added += 1
