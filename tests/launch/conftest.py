"""A run on two nodes, for tests of what starts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fourmin.base.canonical import sha256_hex
from fourmin.datasets.manifest import MANIFEST_NAME, ImageRow, Manifest
from fourmin.launch.job import Job
from fourmin.ledger.lock import CampaignLock
from fourmin.recipe.presets import load_preset
from fourmin.system.software import package_digest


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """Two nodes with one worker each, in a campaign whose lock the command holds."""
    campaign = tmp_path / "campaign"
    (campaign / "run-1").mkdir(parents=True)
    (campaign / "campaign.json").write_text("{}")
    rows = [ImageRow(split, "a/1.png", 9, bytes(32), 8, 8) for split in ("train", "val")]
    manifest = tmp_path / MANIFEST_NAME
    Manifest.from_rows(rows).write(manifest)
    configuration = load_preset("digits").with_overrides(
        {"nodes": 2, "procs_per_node": 1, "device": "cpu", "precision": "fp32"}
    )
    with CampaignLock(campaign):
        yield Job(
            configuration=configuration, ruleset="1.0", run=1, attempt=1, seed=1,
            campaign=sha256_hex(b"{}"), practice=True, submitter="finish", system_name="x",
            system={}, system_digest="", package_digest=package_digest(),
            dataset=Manifest.load(manifest).facts(),
            data_dir=tmp_path, manifest=manifest, events_log=campaign / "run-1" / "events.log",
            checkpoints=campaign / "run-1" / "checkpoints",
            scratch=tmp_path,
        )  # fmt: skip
