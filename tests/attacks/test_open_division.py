"""What only the open division may do: disclosed there, and HYP002 where it says closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attack import errors, validate
from campaign_factory import make_campaign
from forger import LOGS, forge

STEPS = {"learning_rate_decay": "step", "decay_milestones": [4.0, 8.0]}
OPEN: dict[str, dict[str, Any]] = {
    "algorithm": {"algorithm": "downpour", "n_push": 2, "optimizer": "sgd"},
    "phases": {"phases": ["4:image_size=12,eval_resize=12", "8:global_batch_size=128"]},
    "largest_batch": {**STEPS, "largest_batch": 640},
    "learning_rate_points": {
        "learning_rate_decay": "points", "learning_rate_points": ["0:1", "8:16", "64:0.1"],
        "warmup_epochs": 0.0,
    },
    "crop_area": {"crop_area": 0.25},
    "gradient_density": {"gradient_density": 0.01, "density_warmup_epochs": 4, "optimizer": "sgd"},
    "eval_rectangles": {"eval_rectangles": True},
    "eval_resize": {"eval_resize": 18},
}  # fmt: skip
"""By what HYP002 is to name."""


def relabelled(folder: Path) -> None:
    """The open campaign says that it is closed, and every hash is made again."""
    forge(
        folder,
        [
            {"file": "campaign.json", "set": "/division", "to": "closed"},
            {"file": "campaign.json", "set": "/configuration/division", "to": "closed"},
            {"file": LOGS, "key": "submission_division", "set": "/value", "to": "closed"},
            {"file": LOGS, "key": "configuration", "set": "/value/division", "to": "closed"},
        ],
    )


@pytest.mark.parametrize("option", OPEN)
def test_an_option_of_the_open_division(option: str, tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, configuration={"division": "open", **OPEN[option]})
    _, said = validate(folder)
    assert errors(said) == set()
    relabelled(folder)
    code, said = validate(folder)
    found = [f["message"] for f in said["findings"] if f["code"] == "HYP002"]
    assert any(message.startswith(f"{option} is ") for message in found), found
    assert code == 1
    assert errors(said) == {"HYP002"}


def test_a_phases_epoch_has_its_own_number_of_images(tmp_path: Path) -> None:
    """Of 1,437 images 1,408 in batches of 64, and 1,344 of 192."""
    phases = {"phases": ["1:global_batch_size=192"], "division": "open"}
    folder = make_campaign(tmp_path, configuration=phases)
    assert errors(validate(folder)[1]) == set()
    forge(
        folder,
        [
            {
                "file": LOGS,
                "key": "epoch_stop",
                "nth": 1,
                "set": "/metadata/samples_count",
                "to": 1408,
            }
        ],
    )
    code, said = validate(folder)
    assert code == 1
    found = [f["message"] for f in said["findings"] if f["severity"] == "error"]
    assert any("1408" in message and "1344" in message for message in found), found


@pytest.mark.parametrize("sent", [1 << 40, -1, None])
def test_compressed_bytes_are_fewer_than_the_buckets_have(sent: object, tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, configuration={"division": "open", **OPEN["gradient_density"]})
    forge(folder, [{"file": LOGS, "key": "communication", "set": "/value/bytes", "to": sent}])
    found = [f["message"] for f in validate(folder)[1]["findings"]]
    assert any("compressed from" in message for message in found), found


def test_a_plan_that_lacks_what_came_later_was_run_with_its_default(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path)
    assert errors(validate(folder)[1]) == set()


@pytest.mark.parametrize("wrong", ["12:momentum=0.5", "x", "4:image_size=0"])
def test_phases_that_are_none_are_told_and_crash_nothing(wrong: str, tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, configuration={"division": "open"})
    forge(
        folder,
        [
            {"file": "campaign.json", "set": "/configuration/phases", "to": [wrong]},
            {"file": LOGS, "key": "configuration", "set": "/value/phases", "to": [wrong]},
        ],
    )
    assert errors(validate(folder)[1]) & {"HYP001", "SCH001", "SCH002"}
