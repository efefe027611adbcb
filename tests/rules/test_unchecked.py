"""A check that could not be made is no pass: the status says which, in every format, and why."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from campaign_factory import make_campaign
from typer.testing import CliRunner

from fourmin.campaign.events import CampaignClosed
from fourmin.cli.main import app
from fourmin.ledger.view import RunView
from fourmin.rules.engine import check
from fourmin.rules.needs import NEEDS
from fourmin.rules.registry import RULES
from fourmin.rules.rule import CAMPAIGN, ERROR, NOTE, RUN, Finding, Rule, rule
from fourmin.rules.verdict import INVALID, UNCHECKED, VALID
from fourmin.ruleset import load_ruleset

SMALL_BATCH = {"benchmark": "resnet50", "epochs": 32, "configuration": {"global_batch_size": 256}}
"""Fewer epochs than the smallest reference point accepts, at a batch below it."""
REASON = "32.00 epochs, and no reference point up to batch 256"


def _validate(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["validate", *map(str, arguments)], env={"COLUMNS": None})
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout


def test_every_error_of_a_campaign_and_its_runs_is_required() -> None:
    own = {rule.code for rule in RULES if rule.severity == ERROR and rule.scope in (CAMPAIGN, RUN)}
    by_history = {"LED012", "CLK009", "LED025"}  # without git a word says less, no check is missing
    assert load_ruleset().required_checks == own - by_history


def test_what_rules_need_has_a_name() -> None:
    assert {name for rule in RULES for name in rule.needs} == set(NEEDS)


def test_text_and_exit_code(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, **SMALL_BATCH)
    code, output = _validate(folder)
    assert code == 0
    assert output.startswith(f"campaign {folder}: unchecked: CNV002 ({REASON}) (")
    assert output.endswith("; 1 campaign unchecked.\n")
    verbose = _validate("-v", folder)[1]
    assert f"  note    CNV002 summary.json: not checked: {REASON}\n" in verbose
    assert _validate("--strict", folder)[0] == 1


def test_json_sarif_and_junit(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, **SMALL_BATCH)
    value = json.loads(_validate("--format", "json", folder)[1])
    (checked,) = value["checked"]
    assert value["ok"]
    assert (checked["ok"], checked["status"], checked["unchecked"]) == (True, UNCHECKED, ["CNV002"])
    (run,) = json.loads(_validate("--format", "sarif", folder)[1])["runs"]
    (result,) = [one for one in run["results"] if one["ruleId"] == "CNV002"]
    assert (result["kind"], result["level"]) == ("open", "none")
    (suite,) = ElementTree.fromstring(_validate("--format", "junit", folder)[1].split("\n", 1)[1])
    assert suite.get("skipped") == "1"
    assert [one.get("message") for one in suite.iter("skipped")] == [
        f"unchecked: CNV002 ({REASON})"
    ]
    annotations = _validate("--format", "github", folder)[1].splitlines()
    assert [line[: len("::notice")] for line in annotations if "CNV002" in line] == ["::notice"]


def test_the_closing_line_of_a_run(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, **SMALL_BATCH)
    summary = json.loads((folder / "summary.json").read_bytes())
    told = CampaignClosed.of(folder, summary, check([folder], waivers=()))
    assert (told.valid, told.status, told.unchecked) == (False, UNCHECKED, ["CNV002"])
    assert told.verdict == f"unchecked: CNV002 ({REASON})"


@pytest.mark.parametrize(
    "story", [{"practice": True}, {"closed": False}, {"configuration": {"division": "open"}}]
)
def test_what_does_not_count_or_is_compared_with_nothing_requires_nothing(
    story: dict[str, object], tmp_path: Path
) -> None:
    merged = {**SMALL_BATCH, **story}
    if "configuration" in story:
        merged["configuration"] = {"global_batch_size": 256, "division": "open"}
    (checked,) = check([make_campaign(tmp_path, **merged)], waivers=()).checked
    assert (checked.status, checked.unchecked) == (VALID, ())


def test_beside_an_error_nothing_is_unchecked(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, **SMALL_BATCH)
    (folder / "run-3" / "result.json").unlink()
    (checked,) = check([folder], waivers=()).checked
    assert (checked.status, checked.unchecked, checked.words) == (INVALID, (), "not valid")


def test_a_rule_without_what_it_needs_is_not_applied() -> None:
    @rule("LOG001", "strict-log", ERROR, RUN)
    def needing(view: object, train_samples: int) -> None:
        raise AssertionError

    (found,) = _findings(needing, RunView("there"))
    assert (found.severity, found.unchecked, found.reason) == (
        NOTE,
        True,
        NEEDS["train_samples"].missing,
    )


def test_a_rule_that_breaks_is_an_error() -> None:
    @rule("LOG001", "strict-log", ERROR, RUN)
    def broken(view: object) -> None:
        raise ZeroDivisionError("a file of somebody else")

    (found,) = _findings(broken, None)
    assert (found.severity, found.unchecked) == (ERROR, False)
    assert "ZeroDivisionError" in found.message


def _findings(checked: Rule, view: object) -> list[Finding]:
    return list(checked.findings(view, "there"))
