"""Whether a run that was cut off has ended, can go on, and from where."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_factory import make_campaign

from fourmin.campaign.execute import CutOff, look_at
from fourmin.launch.job import complete_checkpoints


def cut(folder: Path, key: str, nth: int = 0) -> Path:
    """Run 2's folder, with its log ending right after the nth record of `key`."""
    log = folder / "run-2/events.log"
    lines = log.read_text().splitlines(True)
    ends = [i for i, line in enumerate(lines) if f'"key": "{key}"' in line]
    log.write_text("".join(lines[: ends[nth] + 1]))
    return log.parent


@pytest.mark.parametrize(
    ("key", "nth", "saved", "expected"),
    [
        ("init_stop", 0, [], CutOff(False, None)),
        ("run_start", 0, [], CutOff(False, 0)),
        ("epoch_start", 4, [], CutOff(False, 0)),
        ("epoch_start", 4, [2], CutOff(False, 2)),
        ("epoch_start", 6, [2, 4], CutOff(False, 4)),
        # What the log does not know of is not gone on from.
        ("epoch_start", 6, [4, 6, 8], CutOff(False, 4)),
        ("epoch_start", 2, [6], CutOff(False, 0)),
        ("run_stop", 0, [4], CutOff(False, None)),
        ("communication", 0, [4], CutOff(True, None)),
    ],
)
def test_the_log_and_the_checkpoints_decide(
    tmp_path: Path, key: str, nth: int, saved: list[int], expected: CutOff
) -> None:
    folder = cut(make_campaign(tmp_path, restarts=[[2, 0]]), key, nth)
    for epoch in saved:
        (folder / f"checkpoints/epoch-{epoch}").mkdir(parents=True)
    assert look_at(folder) == expected


def test_an_aborted_run_has_ended_though_not_of_itself(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, aborted=[2]) / "run-2"
    assert look_at(folder) == CutOff(False, None)


def test_without_a_log_nothing_goes_on(tmp_path: Path) -> None:
    assert look_at(tmp_path) == CutOff(False, None)


def test_a_checkpoint_after_which_was_gone_back_is_forgotten(tmp_path: Path) -> None:
    folder = cut(make_campaign(tmp_path, restarts=[[2, 6]]), "run_restart")
    log = folder / "events.log"
    log.write_text(log.read_text().replace('"restart": 1, "epoch": 6', '"restart": 1, "epoch": 4'))
    for epoch in (4, 6):
        (folder / f"checkpoints/epoch-{epoch}").mkdir(parents=True)
    assert look_at(folder).epoch == 4


def test_only_complete_checkpoints_are_seen(tmp_path: Path) -> None:
    for name in ("epoch-10", "epoch-2", ".epoch-12", "epoch-0", "epoch-x", "epoch-4.tmp"):
        (tmp_path / name).mkdir()
    assert complete_checkpoints(tmp_path) == [2, 10]
