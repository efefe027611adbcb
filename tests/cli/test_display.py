"""What a person sees while a campaign runs, from real records of a campaign that was written."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from campaign_factory import make_campaign
from rich.console import Console

from fourmin.cli import display as displays
from fourmin.ledger.campaign import Campaign
from fourmin.log.reader import read_log
from fourmin.results.run_result import run_result
from fourmin.rules.engine import check


def console() -> Console:
    return Console(
        file=io.StringIO(), width=160, markup=False, highlight=False, force_terminal=True
    )


def replay(display: displays.Display, folder: Path) -> list[str]:
    """Tell `display` everything that happened; returns the live views after each record."""
    campaign = Campaign(folder)
    views = []

    def look() -> None:
        if isinstance(display, displays.LiveDisplay):
            window = Console(file=io.StringIO(), width=160)
            window.print(display._render())
            views.append(window.file.getvalue())  # type: ignore[attr-defined]

    with display:
        look()
        display.campaign_opened(campaign)
        for slot in campaign.slots():
            display.run_starting(slot, 1)
            log = read_log(campaign.run_folder(slot.run) / "events.log")
            for record in log.records:
                display.record(slot, record)
                look()
            display.run_finished(slot, run_result(log))
            look()
    summary = json.loads((folder / "summary.json").read_bytes())
    display.closed(folder, summary, check([folder]))
    return views


def test_the_live_view_follows_a_run(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, not_converged=[2])
    views = replay(displays.LiveDisplay(console()), folder)
    assert views[0].strip() == ""
    assert "5 runs of digits, 2 workers on cpu, bf16" in views[-1]
    running = [view for view in views if "run 1/5" in view and "images/s" in view]
    assert any("epoch 2/16" in view for view in running)
    assert any("accuracy 0." in view and "(target 0.98)" in view for view in running)
    assert any("s left" in view for view in running)
    assert "run 2/5  not-converged" in views[-1]
    assert "run 5/5  converged  accuracy 0.9" in views[-1]


def test_plain_lines_say_what_happened(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, aborted=[3])
    window = console()
    replay(displays.PlainDisplay(window), folder)
    text = window.file.getvalue()  # type: ignore[attr-defined]
    assert "run 1/5  seed " in text
    assert "run 1/5  epoch 2  accuracy 0." in text
    assert "run 3/5  aborted" in text
    assert "worker 1: it died" in text


def test_the_closing_table_has_every_run_and_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_campaign(tmp_path, not_converged=[4])
    replay(displays.Display(), folder)
    text = capsys.readouterr().out
    assert text.count("converged") == 5
    assert "benchmark result: " in text
    assert str(folder) in text
    assert "checked: valid" in text


def test_two_failed_runs_leave_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replay(displays.Display(), make_campaign(tmp_path, not_converged=[1], aborted=[2]))
    assert "no benchmark result" in capsys.readouterr().out


def test_json_lines_end_with_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_campaign(tmp_path)
    replay(displays.choose_display(as_json=True, quiet=False), folder)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines[:2]] == ["campaign-opened", "run-starting"]
    assert sum(line.get("event") == "run-finished" for line in lines) == 5
    summary = json.loads((folder / "summary.json").read_bytes())
    assert lines[-1] == {"campaign": str(folder), "minutes": summary["minutes"], "valid": True}


def test_every_display_says_that_a_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = Campaign(make_campaign(tmp_path, killed_in=2))
    slot = campaign.slots()[1]
    plain, live = console(), console()
    for display in (
        displays.PlainDisplay(plain), displays.LiveDisplay(live), displays.JsonDisplay()
    ):  # fmt: skip
        display.campaign_opened(campaign)
        display.run_starting(slot, 1)
        display.run_restarting(slot, 1, 0, "the campaign was interrupted")
        display.run_restarting(slot, 2, 6, "worker 1 (process 7) died \x1b[2J")
    for window in (plain, live):
        text = window.file.getvalue()  # type: ignore[attr-defined]
        assert "interrupted; restart 1, from the start of training, with the clock running" in text
        assert "restart 2, from the checkpoint after epoch 6, with the clock running" in text
        assert "\x1b[2J" not in text
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["event"], last["run"], last["epoch"]) == ("run-restarting", 2, 6)


def test_the_display_suits_the_options() -> None:
    assert type(displays.choose_display(as_json=False, quiet=True)) is displays.Display
    assert type(displays.choose_display(as_json=False, quiet=False)) is displays.PlainDisplay
