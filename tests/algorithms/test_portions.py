"""Portions: each sample once, whoever does them, whoever dies."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fourmin.training.algorithms.portions import OrderedSum, Portions


def test_the_one_longest_out_is_given_a_second_time_and_the_first_answer_counts() -> None:
    portions: Portions[str] = Portions(2)
    assert [portions.give(7), portions.give(1)] == [0, 1]
    assert portions.answer(1, "b's")
    assert portions.give(7) is None  # has it already
    assert portions.give(1) == 0
    assert portions.give(2) is None  # two have it
    assert portions.answer(0, "b's again")
    assert not portions.answer(0, "late")
    assert portions.complete
    assert portions.answers == ["b's again", "b's"]


def test_what_a_dead_worker_had_comes_back_first_unless_another_has_it() -> None:
    portions: Portions[int] = Portions(3)
    assert [portions.give(0), portions.give(1)] == [0, 1]
    portions.lose(0)
    assert [portions.give(1), portions.give(1)] == [0, 2]
    assert portions.give(2) == 1
    portions.lose(1)
    assert sorted([portions.give(2), portions.give(2)]) == [0, 2]
    # 1 is still with c, and may be given a second time.
    assert portions.give(3) == 1


def test_an_answer_from_one_who_was_taken_for_dead_counts() -> None:
    portions: Portions[int] = Portions(1)
    assert portions.give(0) == 0
    portions.lose(0)
    assert portions.answer(0, 5)
    assert portions.give(1) is None
    assert portions.complete


WORKERS = range(3)


class Work(RuleBasedStateMachine):
    """Any course of giving, answering and dying ends with every answer there, in order."""

    COUNT = 7

    def __init__(self) -> None:
        super().__init__()
        self.portions: Portions[tuple[int, int]] = Portions(self.COUNT)
        self.held: dict[int, int | None] = dict.fromkeys(WORKERS)
        self.first: dict[int, tuple[int, int]] = {}

    @rule(worker=st.sampled_from(WORKERS))
    def ask(self, worker: int) -> None:
        if self.held[worker] is None:
            self.held[worker] = self.portions.give(worker)
            if self.held[worker] is not None:
                assert self.held[worker] not in self.first

    @rule(worker=st.sampled_from(WORKERS))
    def finish(self, worker: int) -> None:
        number = self.held[worker]
        if number is not None:
            answer = (number, worker)
            assert self.portions.answer(number, answer) == (number not in self.first)
            self.first.setdefault(number, answer)
            self.held[worker] = None

    @rule(worker=st.sampled_from(WORKERS))
    def die(self, worker: int) -> None:
        """Another of the same name comes in its place."""
        self.portions.lose(worker)
        self.held[worker] = None

    @invariant()
    def no_portion_has_more_than_two(self) -> None:
        held = Counter(n for n in self.held.values() if n is not None and n not in self.first)
        assert not held or max(held.values()) <= 2

    @precondition(lambda self: not self.portions.complete)
    @rule()
    def one_that_lives_is_enough(self) -> None:
        for worker in WORKERS:
            self.die(worker)
        while not self.portions.complete:
            self.ask(0)
            self.finish(0)

    def teardown(self) -> None:
        if not self.portions.complete:
            self.one_that_lives_is_enough()
        assert self.portions.answers == [self.first[number] for number in range(self.COUNT)]
        super().teardown()


Work.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestWork = Work.TestCase


@given(order=st.permutations(range(12)), again=st.lists(st.integers(0, 11)))
def test_a_sum_does_not_depend_on_what_came_when(order: list[int], again: list[int]) -> None:
    # In floating point 1e16, 1 and -1e16 come to 0 or 1, as they are added.
    terms = [torch.tensor([value], dtype=torch.float64) for value in (1e16, 1.0, -1e16, 3.0) * 3]
    expected = 0.0
    for term in terms:
        expected += float(term)
    total = OrderedSum(torch.zeros(1, dtype=torch.float64), torch.Tensor.add_)
    for number in [n for one, more in zip(order, again + order, strict=False) for n in (one, more)]:
        total.put(number, terms[number].clone())
    for number in order:
        total.put(number, terms[number].clone())
    assert (float(total.total), total.added) == (expected, 12)


def test_a_sum_waits_for_what_is_before() -> None:
    total = OrderedSum([], list.extend)
    total.put(1, ["b"])
    assert (total.total, total.added) == ([], 0)
    total.put(0, ["a"])
    total.put(0, ["x"])
    assert (total.total, total.added) == (["a", "b"], 2)


def test_an_incomplete_round_has_no_answers() -> None:
    portions: Portions[int] = Portions(2)
    portions.answer(1, 1)
    with pytest.raises(KeyError):
        _ = portions.answers
