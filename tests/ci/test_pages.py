"""The workflow that publishes the site: its script, with the tool that is here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from workflows import scripts

pytest.importorskip("jinja2", reason="no jinja2: pip install '.[report]'")
pytest.importorskip("vl_convert", reason="no vl-convert-python: pip install '.[report]'")

TOP = Path(__file__).resolve().parents[2]
WORKFLOW = (TOP / ".github" / "workflows" / "pages.yml").read_text()


def test_the_site_of_the_submissions_is_written(tmp_path: Path) -> None:
    (script,) = scripts(WORKFLOW)
    install, write = script.splitlines()
    assert install.startswith("pip install ")
    (tmp_path / "submissions").symlink_to(TOP / "submissions")
    here = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-e", "-c", write], cwd=tmp_path, env=here, check=True)
    assert (tmp_path / "site" / "index.html").is_file()
    assert "path: site\n" in WORKFLOW
    assert len(list((tmp_path / "site" / "results").iterdir())) > 0
