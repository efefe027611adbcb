"""README's table of the repository's own submissions is that of today."""

from __future__ import annotations

from pathlib import Path

import pytest
import readme_tables as readme
from report_factory import gpu_campaign

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_table_is_not_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("a source archive has no history, of which the table tells")
    monkeypatch.chdir(REPOSITORY)
    text = Path("README.md").read_text()
    assert text == readme.with_tables(text, Path("submissions")), "run `make docs`"


def test_a_new_submission_makes_it_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gpu_campaign(Path("submissions"), 1, 1)
    Path("README.md").write_text(f"above\n{readme.BEGIN}{readme.END}below\n")
    readme.main()
    first = Path("README.md").read_text()
    assert first.startswith("above\n")
    assert first.endswith("below\n")
    assert "| 1xA1000 | 1 | 64 |" in first
    gpu_campaign(Path("submissions"), 2, 2)
    assert readme.with_tables(first, Path("submissions")) != first
    readme.main()
    assert "| 2xA1000 | 2 | 64 |" in Path("README.md").read_text()


def test_a_readme_without_marks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="end of submissions"):
        readme.with_tables(f"{readme.BEGIN}", tmp_path)
