"""Every rule has a page, a passing fixture without any error, and failing ones that it finds.

`says` is what the rule says of a failing fixture, with `#` for every number: `make golden` writes
it anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import CREATED_MS, make_campaign, system_description
from golden import Golden
from tamper import STEPS, apply, reseal

from fourmin.base.files import json_bytes
from fourmin.ledger.campaign import Campaign
from fourmin.rules import pages, registry
from fourmin.rules.engine import check, check_campaign
from fourmin.rules.rule import ERROR, GROUPS, HEADINGS, SCOPES, SEVERITIES, Finding, Rule

FIXTURES = Path(__file__).parent / "fixtures"
NUMBER = re.compile(r"-?\b[0-9]+(?:[.,][0-9]+)*(?:e[-+]?[0-9]+)?")
CUT = re.compile(r"(?:[\[{][^…]*|\S*)…")
DIGEST = re.compile(r"(?<!\.)\b[0-9a-f]{16,}\b")
RULES = {rule.code: rule for rule in registry.RULES}


def _load(code: str) -> dict[str, Any]:
    value = json.loads((FIXTURES / f"{code}.json").read_text())
    assert set(value) == {"rule", "passing", "failing"}
    assert value["rule"] == code
    return value


def _failing() -> list[Any]:
    return [
        pytest.param(code, case, id=f"{code}-{case['why'].replace(' ', '-')}")
        for code in sorted(RULES)
        if (FIXTURES / f"{code}.json").exists()
        for case in _load(code)["failing"]
    ]


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("bases")

    @cache
    def make(story: str) -> Path:
        return make_campaign(folder / str(len(list(folder.iterdir()))), **json.loads(story))

    return make


def _build(case: dict[str, Any], base: Any, tmp_path: Path) -> Path:
    known = {"why", "story", "tree", "change", "edits", "reseal", "path", "line", "lone", "says"}
    assert set(case) <= known
    folder = tmp_path / "campaign"
    if "tree" in case:
        _plant(case["tree"], base, folder)
    else:
        shutil.copytree(base(json.dumps(case.get("story", {}))), folder)
    apply(folder, case.get("edits", []))
    steps = case.get("reseal", [])
    if steps:
        reseal(folder, STEPS if steps == "all" else steps)
    if "change" in case:
        _commit(folder)
        _plant(case["change"].get("tree", {}), base, folder)
        apply(folder, case["change"].get("edits", []))
        for place in case["change"].get("reseal", []):
            reseal(folder / place)
        if "push" in case["change"]:
            _commit(folder, *case["change"]["push"])
    return folder


def _commit(root: Path, *options: str) -> None:
    """A repository whose branch `main` holds what is there."""
    who = {f"GIT_{role}_{what}": "a" for role in ("AUTHOR", "COMMITTER")
           for what in ("NAME", "EMAIL")} | {
        f"GIT_{role}_DATE": f"{CREATED_MS // 1000} +0000" for role in ("AUTHOR", "COMMITTER")
    }  # fmt: skip
    for arguments in (["init", "--quiet", "--initial-branch", "main"], ["add", "--all"],
                      ["commit", "--quiet", "--message", "base", *options]):  # fmt: skip
        subprocess.run(["git", *arguments], cwd=root, env=os.environ | who, check=True)


def _plant(tree: dict[str, Any], base: Any, root: Path) -> None:
    """Several campaigns by path (`earlier` names others by theirs), and system descriptions.

    Submitter, system and name are those of the place, where a story does not say others.
    """
    for place, story in tree.items():
        names = place.split("/")[-5:]
        if place.endswith("system.json"):
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            (root / place).write_bytes(json_bytes(system_description(*names[-3:-1]) | story))
            continue
        if names[0] == "submissions":
            of_place = {"submitter": names[1], "system_name": names[2], "name": names[4]}
            story = of_place | story
        known = [Campaign(root / name) for name in story.get("earlier", ())]
        named = [[c.digest, c.plan.benchmark, c.plan.practice, c.head] for c in known]
        shutil.copytree(base(json.dumps(story | {"earlier": named})), root / place)


def _findings(case: dict[str, Any], folder: Path) -> list[Finding]:
    if "tree" in case:
        target = root = folder
    elif "lone" in case:
        root, target = folder.parent, folder.parent / case["lone"]
        shutil.copytree(folder / case["lone"], target)
    else:
        return check_campaign(folder, "")
    since = {"before": "main@{1}"} if "push" in case.get("change", {}) else {"base": "main"}
    findings = check([target], waivers=(), **since if "change" in case else {}).findings
    return [replace(f, path=f.path.removeprefix(f"{root}/")) for f in findings]


def _without_numbers(message: str, folder: Path) -> str:
    """`message` as it is on every machine and for every plan."""
    message = CUT.sub("…", message.replace(f"{folder}/", ""))
    return NUMBER.sub("#", DIGEST.sub("#", message))


def _write_says(code: str, why: str, says: list[str]) -> None:
    path = FIXTURES / f"{code}.json"
    fixture = json.loads(path.read_text())
    for case in fixture["failing"]:
        if case["why"] == why:
            case["says"] = says
    path.write_text(json.dumps(fixture, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("code", sorted(RULES))
def test_passing_fixture_has_no_error(code: str, base: Any, tmp_path: Path) -> None:
    case = _load(code)["passing"]
    findings = _findings(case, _build(case, base, tmp_path))
    assert [f for f in findings if f.severity == ERROR] == []
    assert [f for f in findings if f.code == code] == []


@pytest.mark.parametrize(("code", "case"), _failing())
def test_failing_fixture_is_found(
    code: str, case: dict[str, Any], base: Any, tmp_path: Path, golden: Golden
) -> None:
    findings = _findings(case, _build(case, base, tmp_path))
    mine = [f for f in findings if f.code == code and f.path == case["path"]]
    assert mine, [(f.code, f.path, f.line, f.message) for f in findings]
    assert "line" not in case or case["line"] in [f.line for f in mine]
    says = sorted({f"{f.path}: {_without_numbers(f.message, tmp_path)}"
                   for f in findings if f.code == code})  # fmt: skip
    if golden.update:
        _write_says(code, case["why"], says)
    else:
        assert says == case["says"]
    finding = mine[0]
    assert (finding.name, finding.severity) == (RULES[code].name, RULES[code].severity)
    assert finding.message
    assert finding.hint
    assert not [f for f in findings if "could not be applied" in f.message]


@pytest.mark.parametrize("rule", registry.RULES, ids=lambda rule: rule.code)
def test_page_is_complete(rule: Rule) -> None:
    assert tuple(rule.sections) == HEADINGS
    assert all(rule.sections.values())
    assert rule.summary.endswith(".")
    assert rule.hint.endswith(".")
    assert "\n" not in rule.hint
    assert rule.code[:3] in GROUPS
    assert rule.code[3:].isdigit()
    assert rule.severity in SEVERITIES
    assert rule.scope in SCOPES
    assert {source for source, _ in rule.foreign} <= {"mlperf", "dawnbench"}
    assert rule.name == rule.name.lower()
    assert " " not in rule.name


def test_codes_and_names_are_unique() -> None:
    assert len({rule.name for rule in registry.RULES}) == len(registry.RULES)
    assert len(RULES) == len(registry.RULES)


def test_every_rule_that_is_written_is_registered() -> None:
    folder = Path(registry.__file__).parent
    written = [
        code
        for path in folder.glob("*.py")
        for code in re.findall(r'^@rule\(\s*"([A-Z]{3}[0-9]{3})"', path.read_text(), re.MULTILINE)
    ]
    assert sorted(written) == sorted(RULES)


def test_every_rule_has_a_fixture_and_every_fixture_a_rule() -> None:
    assert {path.stem for path in FIXTURES.glob("*.json")} == set(RULES)
    assert all(_load(code)["failing"] for code in RULES)


def test_rules_md_is_written_where_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / pages.CURRENT).mkdir()
    monkeypatch.setattr(pages, "rulesets_folder", lambda: tmp_path)
    pages.main()
    written = Path(capsys.readouterr().out.strip())
    assert written.read_text() == pages.all_pages()


def test_rules_md_is_up_to_date() -> None:
    path = Path(pages.rulesets_folder()) / pages.CURRENT / "RULES.md"
    assert path.read_text() == pages.all_pages(), "run python -m fourmin.rules.pages"
