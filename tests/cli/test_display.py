"""What a person sees while a campaign runs, from real records of a campaign that was written."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign
from rich.console import Console

from fourmin.campaign.events import (
    CampaignClosed,
    CampaignOpened,
    Event,
    Note,
    RecordLogged,
    RunFinished,
    RunRestarting,
    RunStarting,
)
from fourmin.cli import display as displays
from fourmin.ledger.campaign import Campaign
from fourmin.log.reader import read_log
from fourmin.results.run_result import RunFacts
from fourmin.rules.engine import check


def console() -> Console:
    return Console(
        file=io.StringIO(), width=160, markup=False, highlight=False, force_terminal=True
    )


def replay(display: displays.Display, folder: Path, columns: int = 160) -> list[str]:
    """Tell `display` everything that happened; returns the live views after each record."""
    campaign = Campaign(folder)
    views = []

    def look() -> None:
        if isinstance(display, displays.LiveDisplay):
            window = Console(file=io.StringIO(), width=columns)
            window.print(display._render())
            views.append(window.file.getvalue())  # type: ignore[attr-defined]

    with display:
        look()
        display.take(CampaignOpened.of(campaign))
        for slot in campaign.slots():
            display.take(RunStarting(slot.run, 1, slot.seed))
            events = campaign.run_folder(slot.run) / "events.log"
            for record in read_log(events).records:
                display.take(RecordLogged.of(slot, record))
                look()
            display.take(RunFinished.of(RunFacts.read(events), 1.5))
            look()
    summary = json.loads((folder / "summary.json").read_bytes())
    display.take(CampaignClosed.of(folder, summary, check([folder])))
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
    for number in range(1, 6):
        row = next(view for view in views if f"run {number}/5  ━" in view).splitlines()[-1]
        epoch, epochs = map(int, re.findall(r"epoch (\d+)/(\d+)", row)[0])
        assert row.count("━") == round(16 * epoch / epochs)
        # Before any has ended, and after one that went through all of it: the whole schedule.
        assert epochs == (16 if number != 2 else 12)


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


def test_the_end_says_what_disturbed_it_and_gives_no_interval_that_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replay(displays.Display(), make_campaign(tmp_path / "a", disturbed=[2, 4]))
    assert "warning: the runs' times spread by " in capsys.readouterr().out
    replay(displays.Display(), make_campaign(tmp_path / "b", runs=2, practice=True))
    assert "2 runs: no interval" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("story", "told"),
    [
        ({"not_converged": [1], "aborted": [2]}, "2 of 5 runs did not reach the target"),
        ({"runs": 1, "not_converged": [1]}, "the only run did not reach the target"),
        ({"runs": 1, "practice": True, "aborted": [1]}, "the only run did not end of itself"),
        ({"runs": 2, "practice": True, "aborted": [1]}, "1 of 2 runs did not end of itself"),
    ],
)
def test_failed_runs_leave_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], story: dict[str, Any], told: str
) -> None:
    replay(displays.Display(), make_campaign(tmp_path, **story))
    assert f"no benchmark result: {told}\n" in capsys.readouterr().out


def test_json_lines_end_with_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_campaign(tmp_path)
    replay(displays.choose_display(as_json=True, quiet=False), folder)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines[:2]] == ["campaign-opened", "run-starting"]
    assert sum(line.get("event") == "run-finished" for line in lines) == 5
    summary = json.loads((folder / "summary.json").read_bytes())
    assert lines[-1] == {
        "schema_version": 1, "kind": "fourmin-event", "warnings": [],
        "event": "campaign-closed", "campaign": str(folder), "minutes": summary["minutes"],
        "valid": True, "status": "valid", "unchecked": [], "verdict": "valid", "errors": 0,
        "summary": summary,
    }  # fmt: skip


def test_every_display_says_that_a_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = Campaign(make_campaign(tmp_path, killed_in=2))
    slot = campaign.slots()[1]
    plain, live = console(), console()
    for display in (
        displays.PlainDisplay(plain), displays.LiveDisplay(live), displays.JsonDisplay()
    ):  # fmt: skip
        display.take(CampaignOpened.of(campaign))
        display.take(RunStarting(slot.run, 1, slot.seed))
        display.take(RunRestarting(slot.run, 1, 0, "the campaign was interrupted"))
        display.take(RunRestarting(slot.run, 2, 6, "worker 1 (process 7) died \x1b[2J"))
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


OPENED = CampaignOpened("r/practice-digits-1", 2, "digits", True, 2, "cpu", "bf16", 64, 16, 0.98)


def events() -> Iterator[Event]:
    """A practice campaign of two runs, one of which is restarted, and what stands beside it."""
    yield Note("launcher local: this machine\x07")
    yield OPENED
    yield RunStarting(1, 1, 7)
    yield RecordLogged(1, "run_start", None, 1000, "INTERVAL_START", {})
    yield RecordLogged(1, "epoch_stop", None, 2000, "INTERVAL_END", {"epoch_num": 2})
    yield RecordLogged(1, "tracked_stats", {"throughput": 12345.6}, 2000, "POINT_IN_TIME", {})
    yield RecordLogged(1, "eval_accuracy", 0.75, 2500, "POINT_IN_TIME", {"epoch_num": 2})
    yield RunRestarting(1, 1, 2, "worker 1 died")
    yield RunFinished(1, "converged", 0.25, 12, 0.985, None, 4.56)
    yield RunStarting(2, 3, 8)
    yield RecordLogged(2, "eval_accuracy", 0.5, 2500, "POINT_IN_TIME", {"epoch_num": 2})
    yield RunFinished(2, "aborted", 0.5, None, None, "worker 0: no \x1b[2J memory")


PLAIN = """\
launcher local: this machine\\x07
practice campaign practice-digits-1: 2 runs of digits, 2 workers on cpu, bf16, \
global batch 64, target 0.98
run 1/2  seed 7
run 1/2  epoch 2  accuracy 0.7500 (target 0.98)  12,346 images/s  4.0 s  about 21 s left
run 1/2  worker 1 died; restart 1, from the checkpoint after epoch 2, with the clock running
run 1/2  converged  accuracy 0.9850 after epoch 12  time to train 15.00 s  started in 4.6 s
run 2/2  seed 8  attempt 3
run 2/2  epoch 0  accuracy 0.5000 (target 0.98)  1.0 s
run 2/2  aborted  time to train 30.00 s  worker 0: no \\x1b[2J memory
"""

JSON_LINES = """\
{"event": "note", "text": "launcher local: this machine\\u0007"}
{"event": "campaign-opened", "campaign": "r/practice-digits-1", "runs": 2, "preset": "digits", \
"practice": true, "workers": 2, "device": "cpu", "precision": "bf16", "global_batch_size": 64, \
"max_epochs": 16, "quality_target": 0.98}
{"event": "run-starting", "run": 1, "attempt": 1, "seed": 7}
{"event": "record", "run": 1, "key": "run_start", "value": null, "time_ms": 1000, \
"event_type": "INTERVAL_START", "metadata": {}}
{"event": "record", "run": 1, "key": "epoch_stop", "value": null, "time_ms": 2000, \
"event_type": "INTERVAL_END", "metadata": {"epoch_num": 2}}
{"event": "record", "run": 1, "key": "tracked_stats", "value": {"throughput": 12345.6}, \
"time_ms": 2000, "event_type": "POINT_IN_TIME", "metadata": {}}
{"event": "record", "run": 1, "key": "eval_accuracy", "value": 0.75, "time_ms": 2500, \
"event_type": "POINT_IN_TIME", "metadata": {"epoch_num": 2}}
{"event": "run-restarting", "run": 1, "restart": 1, "epoch": 2, "why": "worker 1 died"}
{"event": "run-finished", "run": 1, "status": "converged", "minutes": 0.25, "epochs": 12, \
"quality": 0.985, "failure": null, "started_in_seconds": 4.56}
{"event": "run-starting", "run": 2, "attempt": 3, "seed": 8}
{"event": "record", "run": 2, "key": "eval_accuracy", "value": 0.5, "time_ms": 2500, \
"event_type": "POINT_IN_TIME", "metadata": {"epoch_num": 2}}
{"event": "run-finished", "run": 2, "status": "aborted", "minutes": 0.5, "epochs": null, \
"quality": null, "failure": "worker 0: no \\u001b[2J memory", \
"started_in_seconds": null}
"""


def test_plain_lines_word_for_word() -> None:
    now = 0.0
    window = Console(file=io.StringIO(), width=160, markup=False, highlight=False, soft_wrap=True)
    display = displays.PlainDisplay(window, lambda: now)
    for event in events():
        now += 1.0
        display.take(event)
    assert window.file.getvalue() == PLAIN  # type: ignore[attr-defined]


def test_json_lines_byte_for_byte(capsys: pytest.CaptureFixture[str]) -> None:
    display = displays.JsonDisplay()
    for event in events():
        display.take(event)
    begins = '{"schema_version": 1, "kind": "fourmin-event", "event": '
    assert capsys.readouterr().out == JSON_LINES.replace('{"event": ', begins)


def test_quiet_says_nothing_before_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    display = displays.Display()
    for event in events():
        display.take(event)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("kind", [displays.PlainDisplay, displays.LiveDisplay])
def test_a_display_bears_events_whose_beginning_was_lost(kind: type[Any]) -> None:
    told = list(events())
    for start in range(len(told)):
        window = console()
        display = kind(window)
        for event in told[start:]:
            display.take(event)
            if isinstance(display, displays.LiveDisplay):
                window.print(display._render())
        text = window.file.getvalue()  # type: ignore[attr-defined]
        shows = kind is displays.PlainDisplay or start <= told.index(OPENED)
        assert ("aborted" in text) == shows


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_the_live_line_is_one_line_of_any_terminal(tmp_path: Path, columns: int) -> None:
    display = displays.LiveDisplay(Console(file=io.StringIO(), width=columns, force_terminal=True))
    views = replay(display, make_campaign(tmp_path, runs=2, practice=True), columns)
    assert max(len(line) for view in views for line in view.splitlines()) <= columns
    running = [view for view in views if re.search(r"epoch \d+/", view)]
    assert running
    for view in running:
        # Above it stand the headline and, in lines of their own, the runs that have finished.
        last = view.splitlines()[-1]
        assert re.match(r"run [12]/2  ", last)
        assert re.search(r"epoch \d+/(12|16)\b", last)
        assert last.count("/") == 2 + ("images/s" in last)
    assert all("accuracy" in view for view in running)
    assert any("images/s" in view for view in running) == (columns >= 120)
