"""Events as lines of JSON and back, whatever a line has become on its way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourmin.campaign.events import (
    CampaignClosed,
    CampaignOpened,
    Event,
    Note,
    Observers,
    RecordLogged,
    RunFinished,
    RunRestarting,
    RunStarting,
    event_from_line,
)
from fourmin.campaign.standing import Standing

number = st.integers(-(2**53), 2**53)
real = st.floats(allow_nan=False, allow_infinity=False)
some = st.none() | real
leaf = st.none() | st.booleans() | number | real | st.text()
value = st.recursive(
    leaf, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
mapping = st.dictionaries(st.text(), value)
text = st.text()
any_event = st.one_of(
    st.builds(
        CampaignOpened, text, number, text, st.booleans(), number, text, text, number, number, real
    ),
    st.builds(RunStarting, number, number, number),
    st.builds(RunRestarting, number, number, number, text),
    st.builds(RecordLogged, number, text, value, some, st.none() | text, mapping),
    st.builds(RunFinished, number, text, some, some, some, st.none() | text),
    st.builds(
        CampaignClosed, text, some, st.booleans(), text, st.lists(text), text, number, mapping
    ),
    st.builds(Note, text),
)


def line(event: Event) -> bytes:
    return json.dumps(event.to_json()).encode()


@settings(deadline=None)
@given(any_event)
def test_an_event_comes_back_from_its_line(event: Event) -> None:
    assert event_from_line(line(event)) == event


@settings(deadline=None)
@given(any_event, st.text(min_size=10), value)
def test_a_key_of_a_later_version_is_passed_by(event: Event, key: str, added: Any) -> None:
    document = {key: added, **event.to_json()}
    assert event_from_line(json.dumps(document).encode()) == event


@settings(deadline=None)
@given(any_event, st.data())
def test_a_damaged_line_is_no_event_or_one_of_the_right_types(
    event: Event, data: st.DataObject
) -> None:
    whole = line(event)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    damaged = whole[:start] + data.draw(st.binary(max_size=6)) + whole[stop:]
    standing = Standing()
    for one in (damaged, whole, damaged):
        found = event_from_line(one)
        if found is not None:
            standing.take(found)
    assert standing.expected_epochs is not None


@settings(deadline=None)
@given(any_event, st.data())
def test_a_value_of_another_type_makes_no_event(event: Event, data: st.DataObject) -> None:
    document = event.to_json()
    free = {"event", "value"}  # a record's value is anything
    name = data.draw(st.sampled_from([key for key in document if key not in free]))
    document[name] = ["neither", 1]
    assert event_from_line(json.dumps(document).encode()) is None


@pytest.mark.parametrize(
    "noise",
    [
        b"", b"module loaded", b"[1]", b"7", b'"record"', b"null", b"{}", b'{"event": "record"}',
        b'{"event": ["note"], "text": "x"}', b'{"event": "note"}', b'{"event": "note", "text": 1}',
        b'{"event": "x", "text": "x"}', b'{"event": "note", "text": "x"', b"\xff\xfe", b"[" * 99999,
        b'{"event": "run-starting", "run": true, "attempt": 1, "seed": 1}',
        b'{"event": "run-starting", "run": 1.0, "attempt": 1, "seed": 1}',
        b'{"event": "run-starting", "run": 1%s, "attempt": 1, "seed": 1}' % (b"0" * 5000),
        b'{"event": "run-finished", "run": 1, "status": "converged", "minutes": NaN}',
    ],
)  # fmt: skip
def test_what_else_a_job_prints_is_no_event(noise: bytes) -> None:
    assert event_from_line(noise) is None


def test_every_observer_is_told_in_order() -> None:
    told: list[tuple[str, Event]] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def take(self, event: Event) -> None:
            told.append((self.name, event))

    Observers(Named("a"), Named("b")).take(Note("x"))
    assert told == [("a", Note("x")), ("b", Note("x"))]
