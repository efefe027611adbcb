"""Numbers that no training gives, and checks that have nothing to check with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from attack import attack, edited, not_preventable
from attacks_on_runs import record
from campaign_factory import make_campaign
from forger import FOLLOWING, LOGS, forge, scale
from report_factory import gpu_system
from tamper import read_records, write_records

P100 = "Tesla P100-PCIE-16GB"
ENERGY = [500.0, 510.0, 490.0, 505.0, 495.0]


def _on_gpus(model: str, count: int = 2) -> dict[str, Any]:
    """A story of ResNet-50 on GPUs."""
    system = gpu_system(count)
    for one in (*system["hardware"]["accelerators"], *system["limits"]["accelerators"]):
        one["model"] = model
    return {
        "benchmark": "resnet50",
        "epochs": 36,
        "system": system,
        "configuration": {"device": "cuda", "precision": "fp16"},
    }


@attack("empty", "PHY001")
def a_run_faster_than_its_chips(root: Path) -> None:
    make_campaign(root, epoch_ms=1.1, **_on_gpus(P100))


@attack("empty", "PHY001")
def a_run_faster_than_an_unknown_gpu_can_be(root: Path) -> None:
    make_campaign(root, epoch_ms=1.1, **_on_gpus("ACME A1000"))


@attack("empty", "PHY001")
def a_run_faster_than_any_processor(root: Path) -> None:
    make_campaign(root, benchmark="resnet50", epochs=36, epoch_ms=6)


@attack("empty", "PHY001")
def digits_faster_than_any_processor(root: Path) -> None:
    make_campaign(root, epoch_ms=1.5)


@attack("empty", "PHY003")
def more_workers_than_gpus(root: Path) -> None:
    make_campaign(root, **_on_gpus("ACME A1000", count=1))


@attack("empty", "PHY004")
def energy_without_a_meter(root: Path) -> None:
    folder = make_campaign(root, joules=ENERGY)
    forge(folder, [record("energy", file=LOGS, set="/value/method", to="nvml")])


@attack("empty", "PHY004")
def energy_of_some_chips_only(root: Path) -> None:
    folder = make_campaign(root, joules=ENERGY, **_on_gpus("ACME A1000"))
    forge(folder, [record("energy", file=LOGS, set="/value/scope", to="1 GPU a node")])


@attack("empty", "PHY005")
def energy_below_idle(root: Path) -> None:
    make_campaign(root, joules=[1e-6] * 5)


@attack("empty", "CNV002")
def fewer_epochs_than_training_takes(root: Path) -> None:
    make_campaign(root, epochs=2)


@attack("empty", "CNV002")
def fewer_epochs_than_the_reference_at_its_batch(root: Path) -> None:
    make_campaign(root, benchmark="resnet50", epochs=[28, 28, 28, 32, 36])


@attack("empty", "CNV002", "CNV005")
def half_the_reference_epochs_on_images_that_anybody_can_generate(root: Path) -> None:
    """Twice the images an epoch, or the validation images among them."""
    make_campaign(root, benchmark="fractals-resnet50", epochs=5)


@attack("empty", "CNV005")
def weights_that_saw_generated_images_before(root: Path) -> None:
    """They learn no faster than the reference after that, so that the epochs are those."""
    folder = make_campaign(root, benchmark="fractals-resnet50", epochs=11)
    learnt = [
        record("eval_accuracy", 1, file=LOGS, set="/value", to=0.8),
        record("eval_accuracy", 1, file=LOGS, set="/metadata/correct_count", to=4000),
    ]
    forge(folder, learnt)


@attack("empty", "HYP002")
def a_batch_above_every_reference_point(root: Path) -> None:
    """In the closed division, in two epochs."""
    make_campaign(root, epochs=2, configuration={"global_batch_size": 1408})


@attack("campaign", "LOG002")
def no_loss_of_the_first_steps(folder: Path) -> None:
    forge(folder, [record("step_loss", file=LOGS, delete=True)])


@attack("campaign", "CNV005")
def a_first_loss_that_knows_the_classes_already(folder: Path) -> None:
    forge(folder, [record("step_loss", file=LOGS, set="/value/0", to=0.1)])


@attack("campaign", "CNV005")
def a_first_loss_beyond_guessing(folder: Path) -> None:
    forge(folder, [record("step_loss", file=LOGS, set="/value/0", to=50.0)])


@attack("campaign", "CNV005")
def a_loss_of_nothing(folder: Path) -> None:
    forge(folder, [record("tracked_stats", -1, set="/value/train_loss", to=0.0)])


@attack("campaign", "LOG003", "LOG006")
def a_key_that_no_run_logs(folder: Path) -> None:
    forge(folder, [record("tracked_stats", -1, set="/key", to="tracked_status")])


@attack("campaign", "LOG003")
def no_evaluation_after_the_first(folder: Path) -> None:
    records = read_records(folder / "run-2/events.log")
    starts = [i for i, one in enumerate(records) if one["key"] == "eval_start"]
    write_records(folder / "run-2/events.log", records[: starts[0]] + records[starts[-1] :])
    forge(folder)


edited(
    "a package that changed in one run", "SYS003",
    record("package_digest", file="run-1/events.log", set="/value", to="7" * 64), keep={FOLLOWING},
)  # fmt: skip


@attack("campaign", "CLK006")
def throughput_above_the_epochs_own_time(folder: Path) -> None:
    records = read_records(folder / "run-2/events.log")
    for one in records:
        if one["key"] == "tracked_stats":
            one["value"]["throughput"] /= 10
    write_records(folder / "run-2/events.log", records)
    forge(folder)


@attack("campaign", "LOG003")
def an_epoch_left_out(folder: Path) -> None:
    records = read_records(folder / "run-2/events.log")
    kept = [one for one in records if one["metadata"].get("epoch_num") != 3]
    write_records(folder / "run-2/events.log", kept)
    forge(folder)


@not_preventable("empty", "A log that is made up as a whole")
def a_log_made_up_as_a_whole(root: Path) -> None:
    """The factory trains nothing."""
    make_campaign(root)


@not_preventable("empty", "A ledger rolled back before anybody saw it")
def a_ledger_rolled_back_before_anybody_saw_it(root: Path) -> None:
    folder = make_campaign(root, killed_in=3)
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:8]))  # as if run 3 was never tried
    shutil.rmtree(folder / "run-3")


@not_preventable("empty", "Beacons that were tried")
def beacons_tried_until_the_seeds_please(root: Path) -> None:
    for number in range(3):
        shutil.rmtree(make_campaign(root, beacon=f"{number:064x}"))
    make_campaign(root, beacon="3".rjust(64, "0"))


@not_preventable("campaign", "A changed harness that lies about itself")
def a_changed_harness_that_lies_about_itself(folder: Path) -> None:
    forge(folder, [{"file": "campaign.json", "set": "/package_digest", "to": "6" * 64}])


@not_preventable("campaign", "A machine whose clocks lie")
def a_machine_whose_clocks_lie(folder: Path) -> None:
    """Wall clock, monotonic clock and measurements run at nine tenths together, ledger and all."""
    scale(folder, 0.9)
    forge(folder)


@not_preventable("campaign", "Hardware that is only claimed")
def a_processor_that_was_not_there(folder: Path) -> None:
    forge(folder, [record("system", file=LOGS, set="/value/hardware/processor/model",
                          to="Cheap CPU")])  # fmt: skip


@not_preventable("campaign", "Registration that is claimed without git")
def registration_claimed_where_there_is_no_git(folder: Path) -> None:
    forge(folder, [
        {"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": "ab" * 20},
        {"file": "ledger.jsonl", "line": 2, "set": "/data/registration", "to": "registered"},
    ])  # fmt: skip
