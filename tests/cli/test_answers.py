"""What commands answer to mistakes, and before they begin to work."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from campaign_factory import make_campaign
from typer.testing import CliRunner, Result

from fourmin.base.errors import FourminError
from fourmin.base.mishaps import explained
from fourmin.cli.main import app
from fourmin.recipe.tuning import fastest_table, shown_faster


def ask(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if isinstance(result.exception, FourminError):
        raise result.exception
    return result


@pytest.mark.parametrize(
    ("arguments", "what", "why"),
    [
        ("run --dry-run --set lr=3", "unknown --set key 'lr'", "near: base_learning_rate"),
        ("run --dry-run --set momentun=1", "unknown --set key 'momentun'", "near: momentum"),
        ("run --dry-run --precision fp17", "precision='fp17' is not known", "near: fp16"),
        ("run --dry-run --fusion-threshold 4MB", "size '4MB' makes no sense", ""),
        ("run --dry-run --set decoded_cache=1KiB", "decoded_cache=0.0009765625 is not", ""),
        (
            "run --dry-run --set gradient_accumulation_steps=0",
            "gradient_accumulation_steps must",
            "",
        ),
        (f"estimate --preset digits --set max_epochs={2**53 - 1}", "max_epochs must be at", ""),
        ("run --dry-run --practice --runs 0", "--runs 0: a campaign has at least one run", ""),
        ("run --dry-run --data-dir nowhere", "no folder nowhere", ""),
        ("run --dry-run --preset tiny-imagenet --practice", "benchmark tiny-imagenet needs", "no"),
        ("run --dry-run --nodes 4 --launcher local", "4 nodes need a launcher", "launcher local"),
        ("abandon nothing --signing-key /dev/zero", "no signing key /dev/zero", "there is no"),
        ("run --format toml", "--format is for --dry-run", ""),
        ("estimate", "which preset?", ""),
        (
            "report --output nowhere/page.txt results",
            "cannot write nowhere/page.txt",
            "there is no",
        ),
        ("report --output . results", "cannot write .", ". is a folder"),
        ("estimate --preset digits -o nowhere/x.svg", "cannot write nowhere/x.svg", "there is no"),
    ],
)
def test_a_mistake_is_named_with_what_is_near(
    arguments: str, what: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The work itself would end otherwise: what is wrong is said before it.
    monkeypatch.setattr("fourmin.report.collect.collect", lambda *_, **__: pytest.fail("worked"))
    with pytest.raises(FourminError) as refused:
        ask(*arguments.split())
    assert refused.value.what.startswith(what)
    assert refused.value.why.startswith(why)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("run --launcher slrum", "'--launcher': 'slrum' is not known; near: slurm; known: auto,"),
        ("bench step --device gpu", "'--device': 'gpu' is not known"),
        ("run --dry-run --format tml", "'--format': 'tml' is not known; near: toml"),
        ("estimate --images-per-second inf", "'--images-per-second': "),
        ("estimate --images-per-second nan", "'--images-per-second': "),
        (f"estimate --epochs {10**30}", "'--epochs': "),
        ("bench data --seconds inf", "'--seconds': inf is no finite number"),
        ("bench allreduce --seconds nan", "'--seconds': nan is no finite number"),
        ("bench ab --margin nan", "'--margin': "),
        ("bench ab --minutes inf", "'--minutes': inf is no finite number"),
    ],
)
def test_a_value_that_is_none_is_named_with_its_option(arguments: str, told: str) -> None:
    result = CliRunner().invoke(app, arguments.split(), env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert told in result.output


def test_a_link_to_itself_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises((RuntimeError, OSError)) as raised:
        CliRunner().invoke(app, ["report", str(tmp_path / "loop")], catch_exceptions=False)
    assert explained(raised.value).exit_code == 2


def test_a_number_for_a_list_of_texts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("timeouts = 0.5")
    with pytest.raises(FourminError, match="is not a list of texts"):
        ask("run", "--dry-run", "--config", tmp_path / "run.toml")


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"images_per_second": 5e-324}])
def test_a_report_of_what_cannot_be_measured_is_none(
    wrong: dict[str, float], tmp_path: Path
) -> None:
    row = {"peer": "fast", "batch_size": 256, "images_per_second": 1e3, **wrong}
    report = {"schema": "fourmin-bench-step-1", "model": "resnet50", "precision": "fp16",
              "hardware": "a GPU", "image_size": 224, "results": [row]}  # fmt: skip
    (tmp_path / "step.json").write_text(json.dumps(report))
    with pytest.raises(FourminError, match="was never measured"):
        ask("estimate", "--preset", "resnet50-256", "--step-report", tmp_path / "step.json")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["fifo", "deep", "/dev/zero"])
@pytest.mark.parametrize(
    "arguments",
    [
        "run --dry-run --config",
        "run --dry-run --tuning",
        "run --dry-run --site",
        "estimate --preset resnet50-256 --system-profile",
        "estimate --preset resnet50-256 --step-report",
        "estimate --preset resnet50-256 --data-report",
        "report --price",
    ],
)
def test_a_file_without_end_is_refused(arguments: str, what: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "deep").write_text("a = " + 100_000 * "[")
    if what == "fifo" and arguments.endswith(("--config", "--site")):
        assert ask(*arguments.split(), tmp_path / what).exit_code == 0  # TOML may be empty
        return
    with pytest.raises(FourminError) as refused:
        ask(*arguments.split(), tmp_path / what)
    assert what in refused.value.what
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("size", ["65536", "64KiB", "64 kib"])
def test_sizes_have_units_in_every_option(size: str) -> None:
    for option in (("--fusion-threshold", size), ("--set", f"fusion_threshold={size}")):
        text = ask("run", "--dry-run", "--practice", *option).stdout
        assert "\n  fusion_threshold = 65536\n" in text
    assert "decoded_cache = 2048" in ask("run", "--dry-run", "--set", "decoded_cache=2GiB").stdout


def test_fewer_workers_than_the_preset_has_are_said() -> None:
    text = ask("run", "--dry-run", "--practice", "--set", "global_batch_size=63").stdout
    assert "warning: 1 of the preset's 2 workers" in text


def test_an_audit_without_a_training_stack_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_campaign(tmp_path)
    monkeypatch.setattr("fourmin.campaign.requirements.installed_version", lambda _: None)
    monkeypatch.setattr("fourmin.campaign.audit.get_registered_data", lambda *_: None)
    with pytest.raises(FourminError, match="training needs torch, numpy, dali") as refused:
        ask("audit", folder)
    assert refused.value.exit_code == 2


def test_a_report_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    assert "`fourmin run` makes one" in ask("report", tmp_path).stdout


def test_nobody_submits_as_self(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, submitter="self")
    with pytest.raises(FourminError, match="has no submitter") as refused:
        ask("submit", folder, "--into", tmp_path / "submissions")
    assert "--submitter NAME" in refused.value.next_step


@pytest.mark.parametrize("arguments", [["-h"], ["run", "-h"], ["bench", "allreduce", "-h"], ["-V"]])
def test_short_options_are_there(arguments: list[str]) -> None:
    result = ask(*arguments)
    assert (result.exit_code, bool(result.stdout)) == (0, True)
    if arguments[:1] == ["run"]:
        heads = [
            line for line in result.stdout.splitlines() if line.endswith(":") and line[0] != " "
        ]
        assert heads == [
            "Training:", "Where it runs:", "Cluster:", "Campaign:", "Options:", "Examples:",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "completed"),
    [("run --preset resnet50-6", "resnet50-64k"), ("run --set momen", "momentum=")],
)
def test_a_shell_completes_names(words: str, completed: str) -> None:
    environment = {
        "_FOURMIN_COMPLETE": "complete_bash",
        "COMP_WORDS": f"fourmin {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    result = CliRunner().invoke(app, [], env=environment, prog_name="fourmin")
    assert result.stdout.split() == [completed]


def row(name: str, median: float, least: float, size: int = 1024) -> dict[str, object]:
    return {"bytes": size, "algorithm": name, "milliseconds": median, "least": least}


def test_a_table_departs_from_native_only_where_timings_show_it() -> None:
    noisy = [row("native", 1.571, 0.321), row("torus", 0.35, 0.2), row("ring", 0.5, 0.3)]
    assert fastest_table(shown_faster(noisy)) == ("0:native",)
    clear = [row("native", 1.571, 1.4, 4096), row("torus", 0.35, 0.2, 4096)]
    assert fastest_table(shown_faster([*noisy, *clear])) == ("0:native", "2048:torus")
