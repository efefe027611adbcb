"""What is generated is what would be generated, every document can be found, and links lead on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import command_pages
import json_page
import log_page
import map_picture
import pytest
from floors import FLOORS

from fourmin.log import keys
from fourmin.log.reader import read_log

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(ROOT.glob("docs/*.md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
WRITTEN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")]


def anchors(page: Path) -> set[str]:
    """What `#...` can name, as GitHub spells headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def test_the_commands_are_those_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_pages.PAGE.read_text() == command_pages.page(), "run `make docs`"


def test_the_log_page_is_that_of_the_keys() -> None:
    assert log_page.PAGE.read_text() == log_page.page(), "run `make docs`"


def test_the_json_page_and_schema_are_those_of_today() -> None:
    assert json_page.PAGE.read_text() == json_page.page(), "run `make docs`"
    assert json.loads(json_page.SCHEMA.read_text()) == json_page.schema(), "run `make docs`"


def test_the_picture_is_that_of_the_floors() -> None:
    assert map_picture.PICTURE.read_text() == map_picture.picture(), "run `make docs`"
    text = (ROOT / "docs" / "architecture.md").read_text()
    for room in (room for floor in FLOORS for room in floor):
        assert f"`{room}`" in text or f"`{room}/`" in text, f"docs/architecture.md lacks {room}"


@pytest.mark.parametrize("log", sorted(ROOT.glob("submissions/**/run-1/events.log")))
def test_every_key_that_a_run_logs_has_its_meaning(log: Path) -> None:
    text = log_page.page()
    logged = {record.key for record in read_log(log).records} - set(keys.HYPERPARAMETERS)
    assert logged
    assert {key for key in logged if f"| `{key}` |" not in text} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_readme_and_the_index_lead_to_every_document(page: Path) -> None:
    if page.name == "README.md":
        return
    assert f"({page.name}" in (ROOT / "docs" / "README.md").read_text()
    assert f"(docs/{page.name}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", [*PAGES, *WRITTEN], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name} links {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name} links {target}"
