"""Which campaign the options of `run` mean, and what an existing one refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign
from processes import fourmin

from fourmin.base.errors import FourminError
from fourmin.campaign.request import Existing, New, Request, choose_campaign


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """One of five runs of digits that was cut off in its second."""
    return make_campaign(tmp_path / "results", killed_in=2)


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_every_option_that_contradicts_a_campaign_is_named(
    campaign: Path, tmp_path: Path, dry: list[str]
) -> None:
    before = (campaign / "ledger.jsonl").read_bytes()
    done = fourmin(
        "run", "--resume", str(campaign), "--preset", "resnet50-64k", "--nodes", "7",
        "--runs", "99", *dry, state=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert "registered otherwise than --preset, --nodes and --runs" in done.stderr
    assert "--nodes 7: it has 1" in done.stderr
    assert done.stdout == ""
    assert (campaign / "ledger.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"preset": "resnet50-64k"}, "--preset"),
        ({"options": {"nodes": 7}}, "--nodes"),
        ({"options": {"procs_per_node": 31}}, "--procs-per-node"),
        ({"options": {"precision": "fp16"}}, "--precision"),
        ({"options": {"loader": "torchvision"}}, "--loader"),
        ({"options": {"allreduce": "torus"}}, "--allreduce"),
        ({"options": {"group_size": 1}}, "--group-size"),
        ({"options": {"fusion_threshold": 1}}, "--fusion-threshold"),
        ({"options": {"hybrid_threshold": 1}}, "--hybrid-threshold"),
        ({"options": {"max_steps": 3}}, "--max-steps"),
        ({"settings": ("global_batch_size=7",)}, "--set global_batch_size"),
        ({"runs": 99}, "--runs"),
        ({"seed": 1}, "--seed"),
        ({"practice": True}, "--practice"),
        ({"submitter": "somebody"}, "--submitter"),
        ({"system_name": "another"}, "--system"),
        ({"results_dir": Path("/nowhere")}, "--results-dir"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_such_option_is_refused(campaign: Path, given: dict[str, Any], named: str) -> None:
    with pytest.raises(FourminError) as caught:
        choose_campaign(Request(**given), resume=campaign)
    assert caught.value.what.endswith(f"registered otherwise than {named}")


def test_a_tuning_table_that_the_campaign_does_not_have_is_refused(
    campaign: Path, tmp_path: Path
) -> None:
    table = tmp_path / "tuning.json"
    table.write_text(json.dumps({
        "tuning": ["0:torus"], "hybrid_large": "ring", "hybrid_thresholds": {},
        "workers": 2, "workers_per_node": 2,
        "group_size": 0, "device": "cpu",
    }))  # fmt: skip
    with pytest.raises(FourminError, match="otherwise than --tuning"):
        choose_campaign(Request(tuning=table), resume=campaign)


def test_what_says_the_same_is_accepted(campaign: Path) -> None:
    plan = json.loads((campaign / "campaign.json").read_bytes())
    configuration = plan["configuration"]
    same = Request(
        preset="digits",
        options={"nodes": 1, "procs_per_node": configuration["procs_per_node"], "loader": None},
        settings=(f"global_batch_size={configuration['global_batch_size']}", "precision=auto"),
        runs=5,
        results_dir=campaign.parent,
        submitter=plan["submitter"],
        system_name=plan["system"],
    )
    assert choose_campaign(same, resume=campaign) == Existing(campaign)
    assert choose_campaign(Request(), registered=campaign, base="main") == Existing(
        campaign, "main"
    )


def test_two_campaigns_are_one_too_many(campaign: Path, tmp_path: Path) -> None:
    other = make_campaign(tmp_path / "other")
    done = fourmin("run", "--resume", str(campaign), "--campaign", str(other), state=tmp_path)
    assert done.returncode == 2
    assert f"--resume {campaign}; --campaign {other}" in done.stderr
    pointer = tmp_path / "pointer"
    pointer.write_text(f"{campaign}\n")
    assert choose_campaign(Request(), registered=campaign, campaign_file=pointer) == Existing(
        campaign
    )
    with pytest.raises(FourminError, match="two campaigns") as caught:
        choose_campaign(Request(), registered=other, campaign_file=pointer)
    assert f"--campaign-file {campaign}" in caught.value.why


def test_a_file_that_is_not_there_yet_names_none(tmp_path: Path) -> None:
    assert choose_campaign(Request(), campaign_file=tmp_path / "pointer") == New(Request())
    with pytest.raises(FourminError, match="no campaign in"):
        choose_campaign(Request(), resume=tmp_path)
    with pytest.raises(FourminError, match="--base needs --campaign"):
        choose_campaign(Request(), base="main")


def test_a_campaign_whose_last_line_was_torn_can_be_named(campaign: Path) -> None:
    with (campaign / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"data"')
    assert choose_campaign(Request(runs=5), resume=campaign) == Existing(campaign)
