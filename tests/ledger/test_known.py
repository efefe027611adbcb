"""What this machine and a results folder know of earlier campaigns."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from campaign_factory import make_campaign
from git_history import History

from fourmin.ledger.campaign import Campaign
from fourmin.ledger.known import KnownCampaign, earlier_campaigns, remember


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fourmin" / "campaigns.jsonl"


def _known(folder: Path) -> KnownCampaign:
    campaign = Campaign(folder)
    return KnownCampaign(campaign.digest, "digits", campaign.plan.practice, campaign.head)


def test_campaigns_of_the_folder_by_digest(tmp_path: Path) -> None:
    results = tmp_path / "results"
    made = [make_campaign(results, submitter=name) for name in "abc"]
    expected = sorted((_known(folder) for folder in made), key=lambda known: known.campaign)
    assert earlier_campaigns(results, "digits", "self") == expected
    assert earlier_campaigns(results, "resnet50", "self") == []


def test_a_deleted_campaign_is_remembered(tmp_path: Path) -> None:
    results = tmp_path / "results"
    folder = make_campaign(results)
    known = _known(folder)
    Campaign(folder).remember()
    shutil.rmtree(folder)
    assert earlier_campaigns(results, "digits", "self") == [known]


def test_the_folder_tells_a_later_head_than_the_memory(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path / "results")
    now = _known(folder)
    remember(KnownCampaign(now.campaign, "digits", False, "0" * 64))
    assert earlier_campaigns(tmp_path / "results", "digits", "self") == [now]


def test_practice_is_counted_apart(tmp_path: Path) -> None:
    results = tmp_path / "results"
    make_campaign(results, practice=True, runs=1)
    make_campaign(results)
    known = earlier_campaigns(results, "digits", "self")
    folder = make_campaign(results, earlier=tuple(known), submitter="later")
    plan = Campaign(folder).plan
    assert len(plan.practice_campaigns) == 1
    counted = [(k.campaign, k.head) for k in known if not k.practice]
    assert [(one.campaign, one.head) for one in plan.earlier_campaigns] == counted


def test_nonsense_is_passed_over(tmp_path: Path, state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_bytes(b'{"campaign": 1}\nnull\n\xff\n[]\n{"campaign": "a", "benchmark": "digits", '
                      b'"practice": false, "head": "b"}\n')  # fmt: skip
    broken = tmp_path / "results" / "broken"
    broken.mkdir(parents=True)
    (broken / "ledger.jsonl").write_bytes(b"junk\n")
    (broken / "campaign.json").write_bytes(b"{}")
    assert earlier_campaigns(tmp_path / "results", "digits", "self") == [
        KnownCampaign("a", "digits", False, "b")
    ]


def test_a_state_folder_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    remember(KnownCampaign("a", "digits", False, "b"))
    assert earlier_campaigns(tmp_path / "nothing", "digits", "self") == []


def test_the_submitters_campaigns_on_the_base_branch_are_earlier_ones(tmp_path: Path) -> None:
    history = History(tmp_path / "repository")
    place = history.root / "submissions/lab/box/digits"
    landed = make_campaign(place, submitter="lab", system_name="box")
    make_campaign(history.root / "submissions/other/box/digits", submitter="other")
    make_campaign(place.with_name("resnet50"), submitter="lab", benchmark="resnet50")
    expected = _known(landed)
    history.git("add", "--all")
    history.git("commit", "--quiet", "--message", "submissions")
    shutil.rmtree(history.root / "submissions")  # what is checked out does not matter
    for folder in (history.root / "submissions", history.root / "results" / "deep"):
        assert earlier_campaigns(folder, "digits", "lab") == [expected]
    assert earlier_campaigns(history.root / "results", "digits", "nobody") == []
    # A part of the history is enough to read a branch.
    history.git("clone", "--quiet", "--depth", "1", f"file://{history.root}", str(tmp_path / "c"))
    assert earlier_campaigns(tmp_path / "c", "digits", "lab") == [expected]


def test_plans_of_submissions_that_are_not_committed_are_earlier_ones(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path / "submissions/lab/box/digits", submitter="lab")
    make_campaign(tmp_path / "submissions/other/box/digits", submitter="other")
    assert earlier_campaigns(tmp_path / "submissions", "digits", "lab") == [_known(folder)]
