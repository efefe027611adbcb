"""Groups, medians, ranks and what is not counted, against brute force."""

from __future__ import annotations

import dataclasses
import math
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign, system_description
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.files import json_bytes
from fourmin.ledger.landings import CLAIMED, Landing, Registration
from fourmin.report.collect import collect_all
from fourmin.report.group import compare
from fourmin.report.model import Planned, Result
from fourmin.results.rcp import Convergence, ReferencePoint
from fourmin.rules.rule import Finding
from fourmin.rules.verdict import Verdict

POINT = ReferencePoint(64, 12.0, 1.0, 9.0)
STATUSES = ("valid", "unchecked", "invalid")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Result:
    (found,) = collect_all([make_campaign(tmp_path_factory.mktemp("one"))])
    return found


def verdict(status: str) -> Verdict:
    findings = {
        "valid": (),
        "unchecked": (Finding("CNV002", "", "note", "a", None, "why", "", unchecked=True),),
        "invalid": (Finding("LED001", "", "error", "a", 1, "", ""),),
    }[status]
    return Verdict("a", "campaign", findings, required=frozenset({"CNV002"}))


def planned(**changes: Any) -> Planned:
    nothing = {"landed": None, "ranked_batch": None, "earlier": frozenset(), "practice": 0}
    return Planned(**nothing | {"retries": 0} | changes)


def made(one: Result, name: str, **changes: Any) -> Result:
    """A campaign of one group, without reference point, registered as it says."""
    story = {
        "minutes": 1.0, "scaled_minutes": None, "status": "valid", "group": "g",
        "convergence": Convergence(None, None), "planned": planned(), "registration": "claimed",
    } | changes  # fmt: skip
    status = story.pop("status")
    return dataclasses.replace(
        one, path=f"results/{name}", identity=name, verdict=verdict(status), **story
    )


campaigns = st.lists(
    st.tuples(
        st.sampled_from("gh"),
        st.sampled_from([32, 64]),
        st.one_of(st.none(), st.integers(1, 6)),
        st.sampled_from([1.0, 1.5]),
        st.sampled_from(STATUSES),
        st.sampled_from(["closed", "closed", "closed", "abandoned", "unfinished", "pending"]),
    ),
    min_size=1,
    max_size=9,
)


def told(one: Result, drawn: Iterable[tuple[Any, ...]]) -> list[Result]:
    return [
        made(
            one, f"c{number}", group=group, global_batch_size=batch, status=status, state=state,
            minutes=minutes if state == "closed" else None,
            scaled_minutes=minutes and minutes * factor if state == "closed" else None,
            convergence=Convergence(10.0, POINT),
        )
        for number, (group, batch, minutes, factor, status, state) in enumerate(drawn)
    ]  # fmt: skip


def times(drawn: Iterable[tuple[Any, ...]], group: str, batch: int) -> list[float]:
    """What each campaign of a batch that counts took, infinite where it failed."""
    return [
        minutes * factor
        if minutes is not None and state == "closed" and status != "invalid"
        else math.inf
        for g, b, minutes, factor, status, state in drawn
        if (g, b) == (group, batch) and state != "pending"
    ]


@given(drawn=campaigns)
def test_each_batch_is_its_median_campaign(one: Result, drawn: list[tuple[Any, ...]]) -> None:
    found = {(r.group, r.global_batch_size): r for r in compare("1.0", told(one, drawn)).results}
    for group in "gh":
        for batch in (32, 64):
            took = times(drawn, group, batch)
            assert ((group, batch) in found) == bool(took)
            if not took:
                continue
            # The slower middle one: the least time that more than half of them do not exceed.
            median = min(t for t in took if 2 * sum(other <= t for other in took) > len(took))
            row = found[group, batch]
            assert row.failed == math.isinf(median)
            assert row.failed or row.compared_minutes == median
            assert row.standing.at_batch == len(took)
            everywhere = [t for b in (32, 64) for t in times(drawn, group, b)]
            assert row.standing.campaigns == len(everywhere)
            assert row.standing.failed == sum(map(math.isinf, everywhere))
            assert row.standing.batches == sum(bool(times(drawn, group, b)) for b in (32, 64))
            assert row.standing.pending == sum(
                g == group and state == "pending" for g, *_, state in drawn
            )


@given(drawn=campaigns, seed=st.integers(0, 99))
def test_their_order_changes_nothing(one: Result, drawn: list[tuple[Any, ...]], seed: int) -> None:
    results = told(one, drawn)
    shuffled = random.Random(seed).sample(results, len(results))
    assert compare("1.0", shuffled) == compare("1.0", results)


def test_copies_change_nothing(tmp_path: Path) -> None:
    """In `results/` beside `submissions/`, as far as they had come, and a stranger's."""
    root, results = tmp_path / "submissions", tmp_path / "results"
    for number, pace in enumerate((300.0, 200.0, 400.0)):
        made = make_campaign(
            root / f"lab-{number % 2}" / "box" / "digits", submitter=f"lab-{number % 2}",
            system_name="box", nonce=f"{number:032x}", chance=100 * number, epoch_ms=pace,
        )  # fmt: skip
        shutil.copytree(made, results / made.name)
        shutil.copytree(made, root / "stranger" / "box" / "digits" / made.name)
        ledger = results / made.name / "ledger.jsonl"
        ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(True)[: 2 + number]))

    def shown(*paths: Path) -> list[tuple[Any, ...]]:
        rows = compare("1.0", collect_all(paths)).results
        return [(r.identity, r.path, r.rank, r.minutes, r.standing.campaigns) for r in rows]

    labs = [root / "lab-0", root / "lab-1"]
    for lab in labs:
        described = json_bytes(system_description(lab.name, "box"))
        (lab / "box" / "system.json").write_bytes(described)
    alone = shown(*labs)
    assert [rank for _, _, rank, _, _ in alone] == [1, 2]
    others = [results, root / "stranger", *labs]
    for paths in (others, others[::-1]):
        assert shown(*paths) == alone


@given(drawn=campaigns)
def test_a_rank_counts_the_faster_ones(one: Result, drawn: list[tuple[Any, ...]]) -> None:
    rows = compare("1.0", told(one, drawn)).results
    eligible = [r for r in rows if r.status == "valid" and r.minutes and r.standing.ranked]
    for row in rows:
        faster = sum(r.compared_minutes < row.compared_minutes for r in eligible if row.minutes)
        assert row.rank == (1 + faster if row in eligible else None)
    for group in "gh":  # one row of each submitter's system may have a rank: its slowest batch
        own = {r.global_batch_size: r for r in rows if r.group == group}
        chosen = [batch for batch, r in own.items() if r.standing.ranked]
        assert len(chosen) == bool(own)
        slowest = [math.inf if r.failed else r.compared_minutes for r in own.values()]
        for batch in chosen:
            row = own[batch]
            assert (math.inf if row.failed else row.compared_minutes) == max(slowest)
    levels = [
        3 if r.status == "invalid" else 2 if r.minutes is None else STATUSES.index(r.status)
        for r in rows
    ]
    assert levels == sorted(levels)  # all are in one table
    for level in (0, 1):
        kept = [r.compared_minutes for r, own in zip(rows, levels, strict=True) if own == level]
        assert kept == sorted(kept)


def landed(order: int, batch: int | None) -> Planned:
    return planned(landed=Landing(f"{order:040x}", None, True, order), ranked_batch=batch)


def ranked_batch(*results: Result) -> int | None:
    (row,) = [r for r in compare("1.0", results).results if r.standing.ranked]
    return row.global_batch_size


def test_the_first_plan_on_the_branch_names_the_batch_that_is_ranked(one: Result) -> None:
    def batch(size: int, minutes: float, plan: Planned, **changes: Any) -> Result:
        return made(
            one, f"{size}", global_batch_size=size, minutes=minutes, planned=plan, **changes
        )

    slow, fast = batch(32, 4.0, landed(5, 64)), batch(64, 2.0, landed(7, 32))
    assert ranked_batch(slow, fast) == 64  # the later plan changes nothing
    assert ranked_batch(batch(32, 4.0, landed(5, None)), fast) == 32  # it names none: the slowest
    assert ranked_batch(batch(32, 4.0, landed(7, 64)), fast) == 32  # two came first and differ
    assert ranked_batch(batch(32, 4.0, landed(7, 64)), batch(64, 2.0, landed(7, 64))) == 64
    assert ranked_batch(batch(32, 4.0, planned(ranked_batch=64)), batch(64, 2.0, planned())) == 32
    # A campaign that registered itself names a batch when it knows all results.
    alone = [dataclasses.replace(r, registration="self") for r in (slow, fast)]
    assert ranked_batch(*alone) == 32
    # The slowest is not got rid of by failing it.
    gone = batch(32, 4.0, planned(), state="abandoned")
    found = compare("1.0", [gone, batch(64, 2.0, planned())]).results
    assert [r.rank for r in found] == [None, None]


def test_what_differs_in_registration_is_no_group(tmp_path: Any) -> None:
    from tamper import apply, reseal

    folder = make_campaign(tmp_path / "a")
    other = shutil.copytree(make_campaign(tmp_path / "b", nonce="ab" * 16), tmp_path / "c")
    assert len(collect_groups(folder, tmp_path / "b")) == 1
    apply(other, [{"file": "ledger.jsonl", "line": 2, "set": "/data/registration",
                   "to": "registered"}])  # fmt: skip
    reseal(other, ["ledger", "summary"])
    assert len(collect_groups(folder, other)) == 2
    (result,) = collect_all([other])
    assert (result.registration, result.evidence[0]) == ("claimed", "claims registration")


def collect_groups(*paths: Any) -> set[Any]:
    return {result.group for result in collect_all(paths)}


@pytest.mark.parametrize(
    ("days", "order", "state"),
    [(0, False, "pending"), (29.9, False, "pending"), (30.1, False, "unfinished"),
     (-0.03, False, "pending"), (-0.1, False, "unfinished"), (400, True, "pending")],
)  # fmt: skip
def test_a_plan_is_pending_for_thirty_days(
    days: float, order: bool, state: str, tmp_path: Any
) -> None:
    from fourmin.report.own import campaign_result
    from fourmin.rules.engine import load_campaign

    folder = make_campaign(tmp_path)
    for run in folder.glob("run-*"):
        for file in run.iterdir():
            file.unlink()
        run.rmdir()
    (folder / "summary.json").unlink()
    ledger = folder / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().splitlines(True)[0])
    campaign = load_campaign(folder)
    assert campaign.plan is not None
    now = int(campaign.plan.created_ms + days * 86_400_000)
    landing = Landing("0" * 40, None, True, 3, now - 29 * 86_400_000) if order else None
    campaign.registration = Registration(CLAIMED, landing)
    result = campaign_result(campaign, verdict("valid"), now)
    assert (result.state, result.registration) == (state, "claimed")
    assert result.failed == (state != "pending")
    assert campaign_result(campaign, verdict("invalid"), now).failed
    found = compare("1.0", [result])
    assert (len(found.pending), len(found.failed)) == ((1, 0) if state == "pending" else (0, 1))
    assert len(found.results) == (state != "pending")


def test_what_was_not_shown_is_said(one: Result) -> None:
    known = made(one, "b", planned=planned(earlier=frozenset({"a", "x", "y"}), practice=2))
    other = made(one, "a", planned=planned(retries=3), minutes=2.0)
    (row,) = compare("1.0", [known, other]).results
    assert {"2 of 4 shown", "2 practice campaigns", "3 attempts before a start"} <= set(
        row.evidence
    )
    assert row.to_json()["known_campaigns"] == 4
    (alone,) = compare("1.0", [made(one, "b")]).results
    assert not any("shown" in word for word in alone.evidence)
