"""Names, places and chains: whose campaign it is, where it lies, and that there is one of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from attack import attack, not_preventable
from campaign_factory import system_description
from forger import forge, scale
from tamper import apply, read_ledger, write_ledger
from worlds import campaigns, submit

from fourmin.base.files import json_bytes


@attack("submissions", "SUB008")
def the_submitters_folder_renamed(root: Path) -> None:
    (root / "rival").rename(root / "somebody")


@attack("submissions", "SUB008")
def the_systems_folder_renamed(root: Path) -> None:
    (root / "rival/rack").rename(root / "rival/other")


@attack("submissions", "SUB008")
def the_campaigns_folder_renamed(root: Path) -> None:
    (folder,) = campaigns(root, "rival")
    folder.rename(folder.with_name("digits-best"))


@attack("submissions", "SUB008")
def the_benchmarks_folder_renamed(root: Path) -> None:
    (root / "rival/rack/digits").rename(root / "rival/rack/resnet50")


@attack("submissions", "SUB001")
def a_system_without_its_description(root: Path) -> None:
    (root / "rival/rack/system.json").unlink()


@attack("submissions", "SUB001")
def a_foreign_name_without_a_description(root: Path) -> None:
    (root / "rival/rack/system.json").unlink()
    (root / "rival").rename(root / "lab-2")


@attack("submissions", "SUB008", innocent=["lab"])
def a_campaign_copied_into_another_system(root: Path) -> None:
    folder = campaigns(root, "lab")[1]
    shutil.copytree(folder, root / "lab/other/digits" / folder.name)
    told = json_bytes(system_description("lab", "other"))
    (root / "lab/other/system.json").write_bytes(told)


@attack("submissions", "SUB008", innocent=["lab"])
def a_campaign_copied_to_another_submitter(root: Path) -> None:
    folder = campaigns(root, "lab")[1]
    shutil.copytree(folder, root / "rival/rack/digits" / folder.name)


@attack("submissions", "SUB008", innocent=["lab"])
def a_campaign_twice_in_its_system(root: Path) -> None:
    folder = campaigns(root, "lab")[1]
    shutil.copytree(folder, folder.with_name("digits-again"))


@attack("submissions", "SUB008", innocent=["rival"])
def a_rivals_campaign_shown_slower(root: Path) -> None:
    """With the plan's bytes, so that it would be the same campaign."""
    (folder,) = campaigns(root, "rival")
    copied = root / "lab/box/digits" / folder.name
    shutil.copytree(folder, copied)
    scale(copied, 2)
    forge(copied, keep={"campaign", "following"})


@attack("submissions", "RUN011")
def a_rivals_result_under_ones_own_name(root: Path) -> None:
    (folder,) = campaigns(root, "rival")
    copied = root / "lab/box/digits" / folder.name
    shutil.copytree(folder, copied)
    forge(copied, [
        {"file": "campaign.json", "set": "/submitter", "to": "lab"},
        {"file": "campaign.json", "set": "/system", "to": "box"},
    ])  # fmt: skip


@attack("submissions", "LED015")
def a_failed_campaign_made_anew_beside_its_folder(root: Path) -> None:
    """In `results/` beside `submissions/`, both given to the validator."""
    folder = campaigns(root, "rival")[0]
    results = root.parent / "results" / folder.name
    shutil.copytree(folder, results)
    scale(results, 0.9)
    forge(results)


@attack("submissions", "RUN011")
def one_training_as_two_campaigns(root: Path) -> None:
    """A twin with another nonce, so that the seeds differ."""
    (folder,) = campaigns(root, "rival")
    name = folder.name[:-6] + "ffffff"
    shutil.copytree(folder, folder.with_name(name))
    forge(folder.with_name(name), [
        {"file": "campaign.json", "set": "/nonce", "to": "ab" * 16},
        {"file": "campaign.json", "set": "/name", "to": name},
    ])  # fmt: skip


@attack("submissions", "SUB004")
def a_second_submitter_that_differs_by_case(root: Path) -> None:
    shutil.copytree(root / "lab", root / "Lab")


@attack("submissions", "SUB004")
def a_second_system_that_differs_by_case(root: Path) -> None:
    shutil.copytree(root / "lab/box", root / "lab/BOX")


@attack("submissions", "SUB004")
def a_name_that_windows_reserves(root: Path) -> None:
    (root / "rival").rename(root / "aux")


@attack("submissions", "SUB004")
def a_name_that_is_not_plain(root: Path) -> None:
    (root / "rival").rename(root / "riv\u0430l")  # Cyrillic


@attack("submissions", "SUB004")
def a_page_in_a_submission(root: Path) -> None:
    (root / "lab/box/index.html").write_text("<script>alert(1)</script>")


@attack("submissions", "SUB004")
def a_page_beside_the_submissions(root: Path) -> None:
    (root / "index.html").write_text("<script>alert(1)</script>")


@attack("submissions", "SUB004")
def a_file_in_a_submitters_folder(root: Path) -> None:
    (root / "lab/waivers.toml").write_text("")


@attack("submissions", "SUB004")
def a_hidden_folder(root: Path) -> None:
    (root / "lab/.cache").mkdir()
    (root / "lab/.cache/run").write_text("x")


@attack("submissions", "SUB004")
def a_hidden_submitter(root: Path) -> None:
    shutil.copytree(root / "lab", root / ".lab")


@attack("submissions", "SUB010")
def a_lock_file(root: Path) -> None:
    (campaigns(root, "lab")[0] / ".lock").write_text("")


@attack("submissions", "SUB004")
def a_folder_that_is_a_link(root: Path) -> None:
    (root / "lab/more").symlink_to("box")


@attack("submissions", "SCH003")
def a_folder_in_a_run(root: Path) -> None:
    (campaigns(root, "lab")[0] / "run-1/more").mkdir()
    (campaigns(root, "lab")[0] / "run-1/more/events.log").write_text("x")


@attack("submissions", "SUB008")
def a_campaign_too_high_in_the_tree(root: Path) -> None:
    (folder,) = campaigns(root, "rival")
    folder.rename(root / "rival" / folder.name)


@attack("submissions", "SUB008")
def a_campaign_too_deep_in_the_tree(root: Path) -> None:
    (folder,) = campaigns(root, "rival")
    folder.rename(root / "moved")
    (root / "rival/rack/digits/more").mkdir()
    (root / "moved").rename(root / "rival/rack/digits/more" / folder.name)


@attack("submissions", "SUB004")
def a_result_of_mlperf(root: Path) -> None:
    (root / "lab/box/resnet").mkdir()
    line = ':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "seed"}'
    (root / "lab/box/resnet/result_0.txt").write_text(line)


@attack("submissions", "SCH004")
def twenty_megabytes_after_a_closed_ledger(root: Path) -> None:
    with (campaigns(root, "lab")[1] / "ledger.jsonl").open("ab") as file:
        file.write((b"x" * 79 + b"\n") * 250_000)


@attack("submissions", "LED002")
def a_record_after_a_closed_ledger(root: Path) -> None:
    folder = campaigns(root, "lab")[1]
    lines = read_ledger(folder / "ledger.jsonl")
    write_ledger(folder / "ledger.jsonl", [*lines, json.loads(json.dumps(lines[-1]))])
    forge(folder)


@attack("submissions", "LED001")
def bytes_after_a_closed_ledger(root: Path) -> None:
    with (campaigns(root, "lab")[1] / "ledger.jsonl").open("ab") as file:
        file.write(b'{"data"')


@attack("submissions", "SUB003")
def practice_as_a_result(root: Path) -> None:
    submit(root, "lab", "box", 5, practice=True, runs=2)


@attack("submissions", "SUB003")
def practice_without_a_description(root: Path) -> None:
    submit(root, "fresh", "box", 5, practice=True, runs=2)
    (root / "fresh/box/system.json").unlink()


def _described(root: Path, field: str, value: object) -> None:
    apply(root / "rival/rack", [{"file": "system.json", "set": f"/{field}", "to": value}])


@attack("submissions", "SUB002")
def more_accelerators_than_were_there(root: Path) -> None:
    _described(root, "accelerators_per_node", 8)


@attack("submissions", "SUB002")
def accelerators_of_another_kind(root: Path) -> None:
    _described(root, "accelerator_model_name", "NVIDIA H100")


@attack("submissions", "SUB002")
def another_processor(root: Path) -> None:
    _described(root, "host_processor_model_name", "Cheap CPU")


@attack("submissions", "SUB002")
def more_cores_than_were_there(root: Path) -> None:
    _described(root, "host_processor_core_count", 64)


@attack("submissions", "SUB002")
def more_nodes_than_were_there(root: Path) -> None:
    _described(root, "number_of_nodes", 16)


@attack("submissions", "SUB002")
def another_submitter_in_the_description(root: Path) -> None:
    _described(root, "submitter", "lab")


@attack("submissions", "SUB001")
def a_description_that_was_never_completed(root: Path) -> None:
    _described(root, "host_processor_model_name", "")


@not_preventable("submissions", "Two identities")
def a_campaign_of_another_name_on_the_same_machine(root: Path) -> None:
    submit(root, "shell", "box", 7)


@not_preventable("empty", "Campaigns that were deleted and forgotten")
def campaigns_deleted_and_forgotten(root: Path) -> None:
    for number in (0, 1):
        shutil.rmtree(submit(root / "submissions", "lab", "box", number))
    submit(root / "submissions", "lab", "box", 2)
