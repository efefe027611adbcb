"""Scaling efficiency against a measured smaller result, energy to train, and stated prices."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from foreign_factory import make_package
from report_factory import PRICES, gpu_campaign

from fourmin.base.errors import FourminError
from fourmin.report.collect import collect
from fourmin.report.group import compare
from fourmin.report.model import Result
from fourmin.report.prices import load_prices
from fourmin.report.runs import Energy
from fourmin.results.statistics import log_prediction_interval
from fourmin.rules.rule import Finding
from fourmin.rules.verdict import Verdict


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Result:
    (found,) = collect([gpu_campaign(tmp_path_factory.mktemp("one"), 1, 1)]).results
    return found


def sized(one: Result, chips: int, rate: float | None, **changes: object) -> Result:
    name = f"{chips} chips at {rate} {changes}"
    return dataclasses.replace(
        one, chips=chips, images_per_second=rate, path=name, group=name, identity=name,
        **changes,  # type: ignore[arg-type]
    )  # fmt: skip


def efficiencies(*results: Result) -> dict[int, float | None]:
    return {
        r.chips: r.scaling_efficiency
        for r in compare("1.0", results).results
        if r.chips is not None
    }


def test_efficiency_is_per_chip_against_the_smallest(one: Result) -> None:
    found = efficiencies(sized(one, 8, 7200.0), sized(one, 2, 1900.0), sized(one, 1, 1000.0))
    assert found == {1: None, 2: pytest.approx(0.95), 8: pytest.approx(0.9)}


def test_the_baseline_is_named(tmp_path: Path) -> None:
    small = gpu_campaign(tmp_path, 1, 1, epoch_ms=500.0)
    gpu_campaign(tmp_path, 2, 2, epoch_ms=260.0)
    fast, slow = collect([tmp_path]).results
    assert fast.baseline is not None
    assert fast.baseline.path == str(small) == fast.to_json()["scaling_baseline"]
    expected = fast.images_per_second / 2 / slow.images_per_second  # type: ignore[operator]
    assert fast.scaling_efficiency == pytest.approx(expected)
    assert slow.scaling_efficiency is None


def test_a_slow_baseline_flatters_nobody(one: Result) -> None:
    found = efficiencies(sized(one, 1, 500.0), sized(one, 1, 1000.0), sized(one, 4, 3600.0))
    assert found[4] == pytest.approx(0.9)


def test_a_baseline_is_no_outlier_of_its_kind(one: Result) -> None:
    result = sized(one, 4, 3600.0)

    def others(*rates: float) -> list[Result]:
        return [sized(one, 1, r, submitter=f"s{n}") for n, r in enumerate(rates)]

    usual = 1000.0, 1010.0, 990.0, 1005.0
    interval = log_prediction_interval(usual)
    assert interval is not None
    for own, kept in ((interval[0] * 1.001, True), (interval[0] * 0.999, False), (1500.0, True)):
        slow = sized(one, 1, own)
        found = {r.identity: r for r in compare("1.0", [result, slow, *others(*usual)]).results}
        efficiency = found[result.identity].scaling_efficiency
        assert efficiency == (pytest.approx(3600 / 4 / own) if kept else None)
        # What has no spread tells nothing.
        agreed = compare("1.0", [result, slow, *others(9000.0, 9000.0)]).results
        assert next(r for r in agreed if r.identity == result.identity).baseline
    # The next larger one is taken in its place.
    found = {
        r.chips: r
        for r in compare(
            "1.0", [result, sized(one, 1, 500.0), sized(one, 2, 1900.0), *others(*usual)]
        ).results
        if r.submitter == one.submitter
    }
    assert found[4].scaling_efficiency == pytest.approx(3600 / 4 / 950)


def test_a_median_that_failed_campaigns_made_slow_is_no_baseline(one: Result) -> None:
    """Two failed campaigns move the median to the slowest of three that did not."""
    many = [
        dataclasses.replace(
            sized(one, 1, rate), identity=f"{n}", group="g", minutes=1000 / rate,
            scaled_minutes=None, state=state,
        )
        for n, (rate, state) in enumerate(
            [(1000.0, "closed"), (1010.0, "closed"), (600.0, "closed"),
             (1.0, "abandoned"), (1.0, "abandoned")]
        )
    ]  # fmt: skip
    large = sized(one, 4, 3600.0)
    found = {r.chips: r for r in compare("1.0", [*many, large]).results}
    assert found[1].images_per_second == 600.0
    assert found[4].scaling_efficiency is None
    honest = {r.chips: r for r in compare("1.0", [*many[:3], large]).results}
    assert honest[1].images_per_second == 1000.0
    assert honest[4].scaling_efficiency == pytest.approx(0.9)


@pytest.mark.parametrize(
    "change",
    [
        {"submitter": "another"},
        {"chip": "another"},
        {"chip": ""},
        {"round": "0.9"},
        {"dataset": "another"},
        {"verdict": Verdict("a", "campaign", (Finding("LED001", "", "error", "a", 1, "", ""),))},
        {"state": "abandoned"},
        {"minutes": None},
    ],
    ids=str,
)
def test_no_efficiency_against_what_cannot_be_a_baseline(
    change: dict[str, object], one: Result
) -> None:
    assert efficiencies(sized(one, 1, 1000.0, **change), sized(one, 2, 1900.0))[2] is None


def test_no_efficiency_without_a_throughput(one: Result) -> None:
    assert efficiencies(sized(one, 1, None), sized(one, 2, 1900.0))[2] is None
    assert efficiencies(sized(one, 1, 1000.0), sized(one, 2, None))[2] is None


def test_mlperf_scales_where_chips_and_throughput_are_known(tmp_path: Path) -> None:
    folder = make_package(tmp_path)
    (result,) = collect([tmp_path]).results
    assert result.chip == "ACME A1000"
    system = folder.parents[2] / "systems" / "8xA1000.json"
    other = folder.parents[1] / "16xA1000" / "resnet"
    other.parent.mkdir()
    for log in folder.iterdir():
        other.mkdir(exist_ok=True)
        (other / log.name).write_text(log.read_text().replace("8xA1000", "16xA1000"))
    text = system.read_text().replace("8xA1000", "16xA1000")
    (system.parent / "16xA1000.json").write_text(text.replace('"2"', '"4"'))
    efficient = {r.chips: r.scaling_efficiency for r in collect([tmp_path]).results}
    assert efficient == {16: None, 32: pytest.approx(0.5)}  # twice the chips, the same rate


def with_energy(one: Result, *energies: Energy | None) -> Result:
    runs = tuple(
        dataclasses.replace(run, minutes=float(i), energy=energy)
        for i, (run, energy) in enumerate(zip(one.runs, energies, strict=True), start=1)
    )
    return dataclasses.replace(one, runs=runs)


def test_energy_to_train_is_of_the_runs_that_count(one: Result) -> None:
    measured = [Energy(float(joules), "rapl", "package-0") for joules in (9, 10, 20, 60, 900)]
    found = with_energy(one, *measured).energy
    assert found == Energy(30.0, "rapl", "package-0")
    assert with_energy(one, None, *measured[1:]).energy == found  # the fastest is dropped
    assert with_energy(one, measured[0], None, *measured[2:]).energy is None
    mixed = [*measured[:2], Energy(20.0, "nvml", "2 GPUs"), *measured[3:]]
    assert with_energy(one, *mixed).energy is None
    assert dataclasses.replace(with_energy(one, *measured), minutes=None).energy is None


def test_energy_comes_from_the_logs_and_a_result_that_leaves_it_out_is_found(
    tmp_path: Path,
) -> None:
    folder = gpu_campaign(tmp_path / "new", 1, 1, joules=[100.0, 200.0, 300.0, 400.0, 500.0])
    (measured,) = collect([folder]).results
    assert measured.valid
    assert measured.energy is not None
    assert 200 <= measured.energy.joules <= 400
    assert measured.to_json()["energy"]["basis"] == "measured"
    assert json.loads((folder / "run-1" / "result.json").read_bytes())["energy"] == {
        "joules": 100.0, "method": "nvml", "scope": "1 GPU a node", "nodes": [100.0],
    }  # fmt: skip
    result = folder / "run-1" / "result.json"
    document = json.loads(result.read_bytes())
    del document["energy"]
    result.write_text(json.dumps(document))
    assert "LOG004" in {f.code for f in collect([folder]).results[0].verdict.findings}


def test_cost_is_the_result_at_the_stated_price(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(
        PRICES + PRICES.replace("1.5", "3").replace("[[price]]", '[[price]]\nsubmitter = "lab"')
    )
    gpu_campaign(tmp_path / "r", 1, 1)
    gpu_campaign(tmp_path / "r", 2, 2)
    fast, slow = sorted(
        collect([tmp_path / "r"], prices=load_prices(file)).results, key=lambda r: r.chips or 0
    )
    assert fast.to_json()["cost"] == {
        "amount": pytest.approx(fast.minutes / 60 * 3),  # type: ignore[operator]
        "currency": "USD",
        "per_hour": 3.0,
        "source": "https://example.org/prices",
        "date": "2026-11-28",
        "basis": "stated",
    }
    assert slow.cost is None  # nobody said what 2xA1000 costs


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "price"),
        ("price = 3", "price"),
        ("[[price]]\nsystem = 1", "per_hour"),
        (PRICES.replace("1.5", "-1"), "per_hour"),
        (PRICES.replace("1.5", "nan"), "per_hour"),
        (PRICES.replace("1.5", "true"), "per_hour"),
        (PRICES.replace("2026-11-28", '"soon"'), "date"),
        (PRICES.replace("date = 2026-11-28", ""), "date"),
        (PRICES.replace('source = "https://example.org/prices"', ""), "source"),
        (PRICES + "per_day = 2\n", "per_day"),
        ("[[price]\n", "price file"),
        ("\xff\xfe", "price file"),
    ],
)
def test_a_price_without_all_that_makes_it_one_is_refused(
    text: str, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(FourminError) as refused:
        load_prices(file)
    assert why in f"{refused.value.what} {refused.value.why}"


def test_no_price_file(tmp_path: Path) -> None:
    with pytest.raises(FourminError, match="cannot read"):
        load_prices(tmp_path / "none.toml")
