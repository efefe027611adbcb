"""Plans for tests that need no campaign on disk."""

from __future__ import annotations

from typing import Any

from fourmin.results.plan import Plan


def make_plan(**changes: Any) -> Plan:
    """A plan of ResNet-50 at batch 3,264 in the closed division, with `changes`."""
    fields: dict[str, Any] = {
        "ruleset": "1.0", "benchmark": "resnet50", "division": "closed", "practice": False,
        "preset": "resnet50-64k", "settings": [], "runs": 5, "submitter": "self",
        "system": "8xH100", "name": "resnet50-64k-20231114T221320Z-1a2b3c", "nonce": "d" * 32,
        "chip": "ACME A1000",
        "chips": 8, "system_digest": "a" * 64, "package_digest": "b" * 64, "dataset": {},
        "configuration": {"global_batch_size": 3264}, "configuration_digest": "c" * 64,
        "earlier_campaigns": [], "practice_campaigns": [], "created_ms": 1_700_000_000_000,
    }  # fmt: skip
    return Plan(**fields | changes)
