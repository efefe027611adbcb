"""Spreads against the reference runs' seeds, by tables of F, and intervals that say nothing."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
from campaign_factory import make_campaign

from fourmin.report import load_renderer
from fourmin.report.collect import collect
from fourmin.results.plan import Plan
from fourmin.results.rcp import references, spread
from fourmin.results.statistics import f_quantile, says_something
from fourmin.rules.engine import check, load_campaign


@pytest.mark.parametrize(
    ("above", "below", "point"),
    # The upper 1% points of F, as printed in tables (Pearson and Hartley).
    [(1, 1, 4052.18), (4, 23, 4.2636), (1, 23, 7.8811), (4, 9, 6.4221), (10, 10, 4.8491)],
)
def test_f_is_that_of_the_tables(above: int, below: int, point: float) -> None:
    assert f_quantile(0.99, above, below) == pytest.approx(point, rel=2e-5)


def plan_of(folder: Path) -> Plan:
    plan = load_campaign(folder).plan
    assert plan is not None
    return plan


def test_the_most_is_what_the_reference_runs_make_of_it(tmp_path: Path) -> None:
    plan = plan_of(make_campaign(tmp_path))
    minutes = [1.0, 1.1, 0.9, 1.05, 1.2]
    found = spread(plan, minutes)
    assert found is not None
    known = references(plan.ruleset, "digits")
    assert known is not None
    point = known.at(64)
    assert point is not None
    deviation = point.deviation * math.sqrt(point.runs / (point.runs - 1))
    assert found[0] == pytest.approx(statistics.stdev(map(math.log, minutes)))
    assert found[1] == pytest.approx(deviation / point.mean * math.sqrt(4.2636), rel=1e-4)
    assert spread(plan, [1.0]) is None


def test_a_disturbed_campaign_is_warned_of_everywhere(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, disturbed=[2, 4])
    (warning,) = [f for f in check([folder]).findings if f.severity == "warning"]
    assert (warning.code, "seeds explain" in warning.message) == ("CNV006", True)
    assert "CNV006" in load_renderer("table")(collect([folder]))


def test_two_runs_have_no_interval() -> None:
    assert not says_something((1.0, 51.44), 2)
    assert not says_something((1.0, 10.5), 5)
    assert says_something((3.0, 4.0), 3)
