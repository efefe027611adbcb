"""Waivers cover one code of one campaign, show, and are never misread."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_factory import make_campaign
from tamper import apply, reseal

from fourmin.base.errors import FourminError
from fourmin.rules import waivers as module
from fourmin.rules.engine import check, load_campaign
from fourmin.rules.render import FORMATS
from fourmin.rules.rule import ERROR, Finding
from fourmin.rules.waivers import Waiver, apply_waivers, load_waivers, parse_waivers


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A campaign with one error: its summary is not what the runs give."""
    folder = make_campaign(tmp_path / "results")
    apply(folder, [{"file": "summary.json", "set": "/minutes", "to": 0.001}])
    reseal(folder, ["ledger"])
    return folder


def _waiver(folder: Path, code: str = "RUN008") -> Waiver:
    view = load_campaign(folder)
    return Waiver(code, view.digest, view.head, "a known fault", "somebody")


def test_a_waived_error_does_not_fail_and_shows(wrong: Path) -> None:
    report = check([wrong.parent], waivers=[_waiver(wrong)])
    assert report.ok
    assert report.checked[0].ok
    assert [f.waived for f in report.findings if f.severity == "error"] == [
        "a known fault (somebody)"
    ]
    text = "\n".join(FORMATS["text"](report))
    assert "[waived: a known fault (somebody)]" in text
    assert text.endswith(", 1 of the errors waived.")
    assert not any(line.startswith("::error") for line in FORMATS["github"](report))
    assert report.to_json()["findings"][-1]["waived"] or any(
        f["waived"] for f in report.to_json()["findings"]
    )


def test_another_code_or_campaign_is_not_covered(wrong: Path) -> None:
    other = make_campaign(wrong.parent, submitter="other")
    assert not check([wrong], waivers=[_waiver(wrong, "RUN009")]).ok
    assert not check([wrong.parent], waivers=[_waiver(other)]).ok
    assert not check([wrong], waivers=[]).ok


def test_a_campaign_whose_name_begins_alike_is_another(tmp_path: Path) -> None:
    def finding(path: str) -> Finding:
        return Finding("RUN008", "a-name", ERROR, path, None, "a message", "a hint")

    waiver = Waiver("RUN008", "a" * 64, "b" * 64, "a known fault", "somebody")
    paths = ["r/one", "r/one/summary.json", "r/one-more/summary.json", "r"]
    found = apply_waivers(
        [finding(path) for path in paths], {"r/one": ("a" * 64, "b" * 64)}, [waiver]
    )
    assert [bool(one.waived) for one in found] == [True, True, False, False]


def test_a_waiver_holds_only_while_the_plan_is_the_same(wrong: Path) -> None:
    waiver = _waiver(wrong)
    apply(wrong, [{"file": "campaign.json", "set": "/settings", "to": ["x=1"]}])
    assert not check([wrong], waivers=[waiver]).ok


def test_a_waiver_serves_no_other_ledger_of_the_plan(wrong: Path) -> None:
    waiver = _waiver(wrong)
    assert check([wrong], waivers=[waiver]).ok
    before = load_campaign(wrong)
    apply(wrong, [{"file": "summary.json", "set": "/minutes", "to": 0.002}])
    reseal(wrong, ["ledger"])
    after = load_campaign(wrong)
    assert (before.digest, before.head != after.head) == (after.digest, True)
    assert not check([wrong], waivers=[waiver]).ok


def test_the_installations_waivers_are_used(
    wrong: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "rulesets_folder", lambda: tmp_path)
    assert load_waivers() == ()
    assert not check([wrong]).ok
    waiver = _waiver(wrong)
    (tmp_path / "waivers.toml").write_text(
        f'[[waiver]]\ncode = "RUN008"\ncampaign = "{waiver.campaign}"\nhead = "{waiver.head}"\n'
        'reason = "a known fault"\nby = "somebody"\n'
    )
    assert load_waivers() == (waiver,)
    assert check([wrong]).ok


GOOD = f'code = "RUN008"\ncampaign = "{"0" * 64}"\nhead = "{"1" * 64}"\nreason = "why"\nby = "me"\n'


@pytest.mark.parametrize(
    "text",
    [
        "[waiver]\n" + GOOD,
        "[[waivers]]\n" + GOOD,
        "[[waiver]]\n" + GOOD + 'until = "2030"\n',
        "[[waiver]]\n" + GOOD.replace("RUN008", "*"),
        "[[waiver]]\n" + GOOD.replace("0" * 64, "0" * 63),
        "[[waiver]]\n" + GOOD.replace("1" * 64, "1" * 63),
        "[[waiver]]\n" + GOOD.replace(f'head = "{"1" * 64}"\n', ""),
        "[[waiver]]\n" + GOOD.replace('"why"', '""'),
        "[[waiver]]\n" + GOOD.replace('"why"', "5"),
        "[[waiver]]\ncode = 'RUN008'\n",
        "not toml",
        "\x00",
    ],
)
def test_a_file_that_is_not_as_it_should_be(text: str) -> None:
    assert len(parse_waivers(f"[[waiver]]\n{GOOD}".encode(), "w")) == 1
    with pytest.raises(FourminError, match="not a list of waivers"):
        parse_waivers(text.encode(), "w")


def test_bytes_that_are_no_text() -> None:
    for data in (b"\xff", b"waiver = " + b"[" * 100_000):
        with pytest.raises(FourminError, match="not a list of waivers"):
            parse_waivers(data, "w")
    assert parse_waivers(b"", "w") == ()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FourminError, match="cannot read"):
        load_waivers(tmp_path)
    assert load_waivers(tmp_path / "missing") == ()
