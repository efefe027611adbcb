"""How much work long ledgers and long histories are: by what they are measured against, not by
the clock.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import load_script
from campaign_factory import make_campaign, system_description
from speed import SECOND, effort

from fourmin.base.files import json_bytes
from fourmin.ledger import git
from fourmin.ledger.chain import PATIENCE
from fourmin.rules.engine import check, check_campaign
from fourmin.rules.rule import ERROR, MOST_FINDINGS, Finding, Problem, Rule

bench = load_script("validate_speed")

pytestmark = pytest.mark.untraced

SIZE = bench.LEDGER_BYTES // 4
MOST = 0.6 * SECOND
"""The largest ledger may take 3 s, less what starting takes."""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_campaign(tmp_path_factory.mktemp("speed"))


@pytest.fixture(scope="module")
def long_ledgers(campaign: Path) -> dict[str, bytes]:
    return dict(bench.ledgers((campaign / "ledger.jsonl").read_bytes(), SIZE))


@pytest.mark.parametrize("name", [*bench.RECORDS, *bench.PIECES])
def test_a_long_ledger(
    name: str, campaign: Path, long_ledgers: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / campaign.name
    shutil.copytree(campaign, folder)
    assert len(long_ledgers[name]) > 0.9 * SIZE
    (folder / "ledger.jsonl").write_bytes(long_ledgers[name])
    found: list[Finding] = []
    assert effort(lambda: found.extend(check_campaign(folder)), MOST) <= MOST
    assert [f for f in found if f.severity == ERROR]
    assert not [f for f in found if "could not be applied" in f.message]


def test_a_long_ledger_without_fault_is_read_to_its_end(campaign: Path, tmp_path: Path) -> None:
    folder = tmp_path / campaign.name
    shutil.copytree(campaign, folder)
    ledger = folder / "ledger.jsonl"
    opened, sound = ledger.read_bytes().splitlines(keepends=True)[:4], bench.RECORDS["restarts"]
    data = bench.chained(sound, b"".join(opened), SIZE)
    ledger.write_bytes(data)
    last = data.count(b"\n")
    # All of it is well-formed; only the numbers of restarts beyond their most repeat.
    ledger.write_bytes(data[:-2] + b" \n")
    assert ("LED001", last) in {(f.code, f.line) for f in check_campaign(folder)}


def test_reading_ends_where_too_much_is_wrong(campaign: Path, tmp_path: Path) -> None:
    folder = tmp_path / campaign.name
    shutil.copytree(campaign, folder)
    with (folder / "ledger.jsonl").open("ab") as file:
        file.write(b"x\n" * 10_000)
    found = [f for f in check_campaign(folder) if f.code == "LED001"]
    assert len(found) <= PATIENCE + 1
    assert "are not read" in found[-1].message


def test_a_rule_that_finds_the_same_again_and_again() -> None:
    def endless(_: object) -> Iterator[Problem]:
        while True:
            yield Problem("b", path="a")

    rule = Rule("LED001", "x", ERROR, "campaign", endless)
    found = list(rule.findings(None, "a"))
    assert len(found) == MOST_FINDINGS + 1
    assert "the rest is not told" in found[-1].message


def _calls(root: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    called: Counter[str] = Counter()
    run = git._run

    def counted(folder: Path, *arguments: str, **options: Any) -> Any:
        called[arguments[0]] += 1
        return run(folder, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(git, "_run", counted)
        check([root / "submissions"], base="main")
    return called


def test_git_is_asked_as_often_for_twenty_submissions_as_for_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "lab" / "box"
    made = make_campaign(tmp_path / "made", submitter="lab", system_name="box")
    shutil.copytree(made, system / "digits" / made.name)
    (system / "system.json").write_bytes(json_bytes(system_description("lab", "box")))
    asked = []
    for submissions in (2, 20):
        root = tmp_path / f"{submissions}"
        bench.repository(root, tmp_path / "lab", 30, submissions)
        asked.append(_calls(root, monkeypatch))
    assert asked[0] == asked[1]
    assert sum(asked[0].values()) <= 12
