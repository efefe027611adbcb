"""`fourmin validate` and `fourmin rules` as a script meets them: output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from campaign_factory import make_campaign
from tamper import apply
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.cli.rules_command import rules
from fourmin.cli.validate_command import validate
from fourmin.rules.registry import RULES

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
app.command("validate")(validate)
app.command("rules")(rules)


def _run(*arguments: str | Path) -> tuple[int, str]:
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(app, words, env={"COLUMNS": None})  # as in a pipe: not folded
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_a_valid_campaign(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path)
    code, output = _run("validate", folder)
    assert code == 0
    assert output.startswith(f"campaign {folder}: valid (3 notes)")
    assert output.endswith("0 errors, 0 warnings, 3 notes (-v).\n")
    assert len(output.splitlines()) == 2
    assert _run("validate", "--quiet", folder) == (0, "")
    verbose = _run("validate", "-v", folder)[1]
    assert verbose.count("\n  note    ") == 3
    assert verbose.endswith("0 errors, 0 warnings, 3 notes.\n")


def test_an_edited_result_names_the_file_and_the_rule(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path)
    apply(folder, [{"file": "run-2/result.json", "set": "/minutes", "to": 0.001}])
    code, output = _run("validate", tmp_path)
    assert code == 1
    assert f"campaign {folder}: not valid" in output
    assert "error   LED004 run-2/result.json" in output
    assert "error   LOG004 run-2/result.json" in output
    assert output.count(str(folder)) == 1


def test_an_unfinished_campaign_fails_only_if_strict(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, killed_in=3)
    assert _run("validate", folder)[0] == 0
    assert _run("validate", "--strict", folder)[0] == 1


def test_json(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, practice=True, runs=2)
    code, output = _run("validate", "--format", "json", folder)
    value = json.loads(output)
    assert code == 0
    assert value["checked"] == [
        {
            "path": str(folder),
            "kind": "campaign",
            "ok": True,
            "status": "valid",
            "unchecked": [],
            "fails": [],
            "registration": "self",
        }
    ]
    assert [f["code"] for f in value["findings"]] == ["RUN005", "SYS005"]


def test_github(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path)
    (folder / "summary.json").unlink()
    code, output = _run("validate", "--format", "github", folder)
    assert code == 1
    assert output.startswith(f"::error file={folder}/summary.json,title=LED004 recorded-file::")


@pytest.mark.parametrize("path", ["missing", "."])
def test_nothing_to_check_is_wrong_usage(tmp_path: Path, path: str) -> None:
    with pytest.raises(FourminError) as raised:
        _run("validate", tmp_path / path)
    assert raised.value.exit_code == 2


def test_without_a_path_the_usual_folders_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FourminError, match="nothing to check") as refused:
        _run("validate")
    assert refused.value.exit_code == 2
    make_campaign(tmp_path / "results")
    assert _run("validate")[0] == 0


def test_rules_lists_all() -> None:
    code, output = _run("rules")
    assert code == 0
    lines = output.splitlines()
    assert [line.split()[:3] for line in lines] == [[r.code, r.name, r.severity] for r in RULES]
    assert all(line.endswith(".") for line in lines)


@pytest.mark.parametrize("name", ["LED004", "led004", "recorded-file"])
def test_rules_prints_a_page(name: str) -> None:
    code, output = _run("rules", name)
    assert code == 0
    assert output.startswith("# LED004 recorded-file (error)\n")
    assert "## Why it is bad" in output


@pytest.mark.parametrize(
    ("name", "near"),
    [("LED04", "LED004"), ("recorded", "recorded-file"), ("SCH", "SCH001"), ("nothing-like", "")],
)
def test_an_unknown_rule_names_near_ones(name: str, near: str) -> None:
    with pytest.raises(FourminError) as raised:
        _run("rules", name)
    assert raised.value.exit_code == 2
    assert near in raised.value.why
    assert bool(raised.value.why) == bool(near)


def test_validation_needs_no_training_stack(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path)
    script = (
        "import sys\n"
        "from fourmin.rules.engine import check\n"
        f"assert check([{str(folder)!r}]).ok\n"
        "heavy = {'torch', 'numpy', 'nvidia', 'PIL', 'sklearn', 'fourmin.training'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_commands_import_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "import fourmin.cli.validate_command, fourmin.cli.rules_command\n"
        "heavy = {'torch', 'numpy', 'jsonschema', 'fourmin.rules', 'fourmin.ledger'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
