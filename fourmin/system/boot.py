"""Which boot of which machine: monotonic clocks can be compared within one."""

from __future__ import annotations

from pathlib import Path

from fourmin.base.canonical import sha256_hex

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_digest() -> str | None:
    """16 hex digits that differ between boots and machines and name neither; None off Linux."""
    try:
        return sha256_hex(b"fourmin " + _BOOT_ID.read_bytes().strip())[:16]
    except OSError:
        return None
