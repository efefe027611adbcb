"""Files of options: the same plan again, what goes over them, and what is wrong in which line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.base.toml import tomllib
from fourmin.cli.main import app
from fourmin.recipe.configuration import FIELDS


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def ask(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def plan(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask("run", "--dry-run", "--json", *arguments))
    return found


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--practice", "--runs", "2", "--seed", "0", "--max-steps", "5", "--set", "momentum=0.8"),
        ("--fusion-threshold", "64KiB", "--practice", "--allreduce", "ring", "--no-trial"),
        ("--timeout", "join=90", "--timeout", "end=5", "--max-restarts", "0", "--system", 'a "b"'),
    ],
)
def test_a_written_file_gives_the_same_plan_and_the_same_file(options: tuple[str, ...]) -> None:
    if 'a "b"' in options:
        options = (*options[:-1], "a-b")
    text = ask("run", "--dry-run", "--format", "toml", *options)
    Path("a.toml").write_text(text)
    assert ask("run", "--config", "a.toml", "--dry-run", "--format", "toml") == text
    again, asked = plan("--config", "a.toml"), plan(*options)
    # The step is now asked for; what it is stays.
    assert again | {"step": ""} == asked | {"step": ""}
    told = tomllib.loads(text)
    assert set(told["configuration"]) >= set(FIELDS) - {"preset", "benchmark", "max_steps"}


def test_options_and_set_go_over_the_file_and_are_in_the_plan() -> None:
    Path("a.toml").write_text(
        "practice = true\nruns = 4\n[configuration]\nmomentum = 0.5\nlabel_smoothing = 0.1\n"
        'fusion_threshold = "1MiB"\nallreduce = "ring"\n'
    )
    found = plan("--config", "a.toml", "--runs", "3", "--set", "momentum=0.7", "--allreduce",
                 "native")  # fmt: skip
    assert found["runs"] == 3
    fields = found["configuration"]
    assert (fields["momentum"], fields["label_smoothing"], fields["fusion_threshold"]) == (
        0.7, 0.1, 1 << 20,
    )  # fmt: skip
    assert fields["allreduce"] == "native"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('preset = "digits"\nruns = "five"\n', "a.toml:2: runs = 'five' is not a whole number"),
        ("\npractise = true\n", "a.toml:2: unknown key practise\nnear: practice"),
        ("procs_pernode = 2\n", "a.toml:1: unknown key procs_pernode\nnear: procs_per_node below"),
        ("timeouts = [3]\n", "a.toml:1: timeouts = [3] is not a list of texts"),
        ("[configuration]\n\nlr = 3\n", "a.toml:3: unknown key lr\nnear: base_learning_rate"),
        ('[configuration]\nfusion_threshold = "4MB"\n', "a.toml:2: size '4MB' makes no sense"),
        ('[configuration]\nnodes = "4MiB"\n', "a.toml:2: nodes='4mib' is not of type int"),
        ("[configuration]\nnodes = 1.5\n", "a.toml:2: nodes=1.5 is not of type int"),
        ('[configuration]\nnesterov = "si"\n', "a.toml:2: nesterov='si' is not of type bool"),
        ("configuration = 3\n", "a.toml:1: configuration = 3 is not a table"),
        ("runs = \n", "cannot read the configuration a.toml\nInvalid value (at line 1"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, told: str) -> None:
    Path("a.toml").write_text(text)
    with pytest.raises(FourminError) as refused:
        ask("run", "--config", "a.toml", "--dry-run")
    assert str(refused.value).startswith(told)
    assert refused.value.exit_code == 2


def test_the_users_own_configuration_says_who_submits() -> None:
    # Folded where the terminal is narrower.
    told = " ".join(ask("run", "--dry-run").split())
    assert "can be reported, but not submitted" in told
    Path("config/fourmin").mkdir(parents=True)
    own = Path("config/fourmin/config.toml")
    own.write_text('submitter = "lab"\nsystem = "box"\n')
    assert "not submitted" not in ask("run", "--dry-run")
    ask("register", "--preset", "digits")
    (registered,) = Path("submissions").glob("lab/box/digits/*/campaign.json")
    assert json.loads(registered.read_bytes())["submitter"] == "lab"
    own.write_text("submiter = 'lab'\n")
    with pytest.raises(FourminError, match=r"config.toml:1: unknown key submiter"):
        ask("run", "--dry-run")
    own.unlink()
    with pytest.raises(FourminError, match="needs a submitter"):
        ask("register", "--preset", "digits")


def test_only_digits_counts_without_a_submitter() -> None:
    with pytest.raises(FourminError, match="2 things are missing") as refused:
        ask("run", "--dry-run", "--preset", "fashion-mnist", "--data-dir", "nowhere")
    assert "needs a submitter" in refused.value.why
    for options in (("--practice",), ("--submitter", "self"), ("--submitter", "lab")):
        with pytest.raises(FourminError, match="no folder nowhere"):
            ask("run", "--dry-run", "--preset", "fashion-mnist", "--data-dir", "nowhere", *options)
