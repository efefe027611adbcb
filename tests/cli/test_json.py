"""Every JSON that a command prints is of its kind in docs/output.schema.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from campaign_factory import make_campaign
from jsonschema import Draft202012Validator
from output_kinds import SCHEMA, require_kind
from typer.testing import CliRunner

from fourmin.campaign.audit import Audit, Recomputed
from fourmin.campaign.events import CampaignClosed, CampaignOpened, Note
from fourmin.campaign.replay import ProofAudit
from fourmin.cli import display as displays
from fourmin.cli.main import app
from fourmin.cli.output import print_json
from fourmin.ledger.campaign import Campaign
from fourmin.rules.engine import check

ROOT = Path(__file__).resolve().parents[2]
PRINTED = {
    "validation": ["validate", "submissions", "--format", "json"],
    "report": ["report", "submissions", "--format", "json", "--with", "published"],
    "plan": ["run", "--dry-run", "--json"],
    "presets": ["presets", "--json"],
    "preset": ["presets", "alexnet-64k", "--json"],
    "rules": ["rules", "--json"],
    "doctor": ["doctor", "--json"],
    "estimate": ["estimate", "--preset", "resnet50-8k", "--json"],
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_command_prints_its_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    # Narrow terminals must not fold JSON.
    result = CliRunner().invoke(app, PRINTED[name], env={"COLUMNS": "40"})
    assert result.exit_code == 0, result.output
    require_kind(json.loads(result.stdout), name)


def test_two_results_side_by_side(tmp_path: Path) -> None:
    one, two = (make_campaign(tmp_path / name, beacon=f"{n:064x}") for n, name in enumerate("ab"))
    arguments = ["report", "--compare", str(one), str(two), "--format", "json"]
    result = CliRunner().invoke(app, arguments)
    require_kind(json.loads(result.stdout), "comparison")


def test_every_line_of_a_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_campaign(tmp_path)
    display, campaign = displays.JsonDisplay(), Campaign(folder)
    display.take(Note("it begins"))
    display.take(CampaignOpened.of(campaign))
    summary = json.loads((folder / "summary.json").read_bytes())
    display.take(CampaignClosed.of(folder, summary, check([folder])))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["note", "campaign-opened", "campaign-closed"]
    for line in lines:
        require_kind(line, "event")
    assert {"campaign", "minutes", "valid", "status", "unchecked"} <= set(lines[-1])


def test_an_audit(capsys: pytest.CaptureFixture[str]) -> None:
    print_json("audit", Audit(1, True, (Recomputed("order", "same", "a", "a"),)).to_json())
    require_kind(json.loads(capsys.readouterr().out), "audit")


def test_an_audit_of_a_proof(capsys: pytest.CaptureFixture[str]) -> None:
    print_json("proof", ProofAudit(True, (Recomputed("state 0", "same", "a", "a"),)).to_json())
    told = json.loads(capsys.readouterr().out)
    require_kind(told, "proof")
    assert told["outcome"] == "audited"


def test_a_wrong_document_is_refused() -> None:
    assert not Draft202012Validator(SCHEMA).is_valid({"schema_version": 1, "kind": "fourmin-plan"})
    assert not Draft202012Validator(SCHEMA).is_valid({"kind": "fourmin-presets", "digits": {}})
