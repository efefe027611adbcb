"""Released versions of the harness by their package's digest."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_factory import make_campaign

from fourmin.base.errors import FourminError
from fourmin.rules import system
from fourmin.rules.engine import check_campaign, load_campaign
from fourmin.rules.releases import released_versions


def test_releases_are_read_by_digest(tmp_path: Path) -> None:
    file = tmp_path / "releases.toml"
    assert released_versions(file) == {}
    file.write_text(f'[[release]]\nversion = "1.0.0"\ndigest = "{"a" * 64}"\n')
    assert released_versions(file) == {"a" * 64: "1.0.0"}


@pytest.mark.parametrize(
    "text", ["[[release", '[[release]]\nversion = "1"\n', '[[release]]\nversion="1"\ndigest="x"\n']
)
def test_a_faulty_file_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "releases.toml"
    file.write_text(text)
    with pytest.raises(FourminError):
        released_versions(file)


def test_a_released_harness_is_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_campaign(tmp_path)
    assert "SYS006" in {finding.code for finding in check_campaign(folder)}
    plan = load_campaign(folder).plan
    assert plan is not None
    monkeypatch.setattr(system, "released_versions", lambda: {plan.package_digest: "1.0.0"})
    assert "SYS006" not in {finding.code for finding in check_campaign(folder)}
