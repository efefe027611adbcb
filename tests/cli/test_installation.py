"""Commands that are printed work for the installation at hand, and bounds are what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import lowest
import pytest

from fourmin.base import installation
from fourmin.base.installation import install

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("noted", "command"),
    [
        ({"url": "file://HERE", "dir_info": {"editable": True}},
         "pip install --editable 'HERE[train]'"),
        ({"url": "file://HERE", "dir_info": {}}, "pip install 'HERE[train]'"),
        ({"url": "file:///gone/fourmin.whl"}, "pip install '.[train]' in a checkout of fourmin"),
        ({"url": "https://host/fourmin", "vcs_info": {"vcs": "git", "commit_id": "1"}},
         "pip install 'fourmin[train] @ git+https://host/fourmin'"),
        (None, "pip install '.[train]' in a checkout of fourmin"),
    ],
)  # fmt: skip
def test_the_command_names_where_it_came_from(
    noted: dict[str, Any] | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = None if noted is None else json.dumps(noted).replace("HERE", str(tmp_path))

    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return text

    monkeypatch.setattr(installation.metadata, "distribution", lambda name: Distribution())
    assert install("train") == command.replace("HERE", str(tmp_path))


def test_no_message_names_a_package_that_no_index_has() -> None:
    for path in (*ROOT.glob("fourmin/**/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md"):
        found = re.findall(r"pip install '?fourmin(?!\[\{extra\}\] @)", path.read_text())
        assert not found, path


def test_the_lowest_versions_are_the_bounds() -> None:
    named = list(lowest.lowest(["train", "train-cuda12"]))
    assert "typer==0.16" in named
    assert named.count("torch==2.9") == 2
    assert all("==" in one for one in named)
    assert any(one.startswith("tomli==2.0;") for one in named)
