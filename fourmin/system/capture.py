"""The captured system: what a result carries, and the digest of what must not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fourmin.base.canonical import canonical_bytes, sha256_hex
from fourmin.system import environment, hardware, software

_DIGESTED_VERSIONS = ("fourmin", "python", "torch", "torchvision", "dali", "cuda", "cudnn", "nccl")


def capture_system() -> dict[str, Any]:
    """Hardware, its limits, software and environment of this node, as plain JSON types."""
    return {
        "hardware": {
            "processor": hardware.processor(),
            "memory_gib": hardware.memory_gib(),
            "network": hardware.network_types(),
            "accelerators": hardware.accelerators(),
            "driver": hardware.driver_version(),
        },
        "limits": hardware.limits(),
        "software": software.capture(),
        "environment": environment.captured_environment(),
        "interpreter_changes": environment.interpreter_changes(),
    }


def system_digest(system: Mapping[str, Any]) -> str:
    """Hex SHA-256 of the hardware and of the versions that decide speed or numbers.

    Left out, because they differ between runs of one system: main memory, which some machines
    grow, the environment, the kernel's release, clocks and other limits, and everything that
    `capture_system` does not read in the first place.
    """
    hardware = {name: value for name, value in system["hardware"].items() if name != "memory_gib"}
    return sha256_hex(
        canonical_bytes(
            {
                "hardware": hardware,
                "versions": {name: system["software"][name] for name in _DIGESTED_VERSIONS},
            }
        )
    )
