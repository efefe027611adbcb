"""What commands print fits the terminal, in whole words."""

from __future__ import annotations

import re
from pathlib import Path

import command_pages
import pytest
import typer
from campaign_factory import make_campaign
from typer.testing import CliRunner

from fourmin.base.text import folded
from fourmin.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = command_pages._commands(typer.main.get_command(app), ())
PRINTED = [
    ["report", "submissions"],
    ["report", "-v", "submissions"],
    ["report", "--with", "published", "submissions"],
    ["validate", "submissions"],
    ["validate", "-v", "submissions"],
    ["doctor"],
    ["presets"],
    ["presets", "resnet50-64k"],
    ["estimate", "--preset", "resnet50-64k", "--nodes", "256"],
    ["estimate", "--validation"],
    ["rules"],
    ["--help"],
    *([*words, "--help"] for words in COMMANDS),
]


def printed(arguments: list[str], columns: int) -> str:
    environment = {"COLUMNS": str(columns), "TERM": "dumb"}
    result = CliRunner().invoke(app, arguments, env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("arguments", PRINTED, ids=" ".join)
def test_no_line_is_wider_and_no_word_is_broken(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    text = printed(arguments, 80)
    assert {line for line in text.splitlines() if len(line) > 80} == set()
    assert not re.search(r"<(int|float|str|path|list)\b", text)
    # With room for everything the same words come: none was cut in two. (doctor takes its time.)
    assert arguments == ["doctor"] or words_of(text) <= words_of(printed(arguments, 1000))


def test_tables_are_no_raw_markdown() -> None:
    assert not re.search(r"^\||\*\*|\]\(", printed(["estimate", "--validation"], 80), re.MULTILINE)


def test_submissions_without_an_error_are_five_lines_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert len(printed(["validate", "submissions"], 80).splitlines()) <= 5


def words_of(text: str) -> set[str]:
    """The words without punctuation that follows the layout; of figures, which move, the form."""
    words = (re.sub(r"\d+", "0", word.strip(";:,.()[]")) for word in text.split())
    return {word for word in words if not set(word) <= {"─", "━"}}


@pytest.mark.parametrize("columns", [30, 40, 80, 200])
def test_folding_keeps_words_and_begins_below_the_last_column(columns: int) -> None:
    line = "warning  processors      " + "two of them were busy, and " * 9 + "a/very/long/path" * 2
    text = folded(line, columns)
    assert text.split() == line.split()
    lines = text.splitlines()
    longest = max(map(len, line.split()))
    assert all(len(one) <= max(columns, longest) for one in lines)
    if columns >= 80:
        assert {len(one) - len(one.lstrip()) for one in lines[1:-1]} <= {25}
    assert folded(line, None) == line
    assert "\n  2.5 min" in folded("x" * 26 + " 2.5 min, and more", 30)


def test_a_broken_campaign_is_shown_as_narrowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = make_campaign(Path("results"), killed_in=3)
    (folder / "stray.txt").write_text("")
    result = CliRunner().invoke(app, ["validate"], env={"COLUMNS": "80"})
    assert result.exit_code == 1
    assert max(map(len, result.output.splitlines())) <= 80
