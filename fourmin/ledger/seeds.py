"""Seeds are assigned, not chosen: they follow from the beacon and the campaign's digest."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from fourmin.results.plan import Plan

SALT = b"fourmin-seed-v1"


def new_beacon() -> str:
    """32 random bytes in hex: the beacon of a campaign that registers itself."""
    return secrets.token_hex(32)


def hkdf_sha256(key: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF with SHA-256 (RFC 5869): extract from `key`, expand to `length` bytes."""
    pseudorandom = hmac.new(salt, key, hashlib.sha256).digest()
    output, block = b"", b""
    for counter in range(1, -(-length // hashlib.sha256().digest_size) + 1):
        block = hmac.new(pseudorandom, block + info + bytes([counter]), hashlib.sha256).digest()
        output += block
    return output[:length]


def assign_seeds(beacon: str, campaign_digest: str, runs: int) -> list[int]:
    """The seeds of runs 1 to `runs`, 32-bit and distinct.

    `beacon` and `campaign_digest` are hex. The seed of run i is the first four bytes,
    big-endian, of HKDF-SHA256 with the beacon as key, the campaign's digest and i (4 bytes)
    as info; where those repeat an earlier run's seed, the next four bytes that do not.

    Raises ValueError when either is not hex.
    """
    key, digest = bytes.fromhex(beacon), bytes.fromhex(campaign_digest)
    seeds: list[int] = []
    for run in range(1, runs + 1):
        stream = hkdf_sha256(key, SALT, digest + run.to_bytes(4, "big"), 255 * 32)
        candidates = (int.from_bytes(stream[i : i + 4], "big") for i in range(0, len(stream), 4))
        seeds.append(next(seed for seed in candidates if seed not in seeds))
    return seeds


def planned_seeds(plan: Plan, beacon: str, campaign_digest: str) -> list[int]:
    """The seeds of a plan, by `assign_seeds`.

    Only practice, which never counts, may name its own: `practice_seed` is then that of run 1,
    and each later run has the next number. Raises ValueError as `assign_seeds` does.
    """
    first = plan.practice_seed
    if plan.practice and first is not None:
        return [(first + run) % 2**32 for run in range(plan.runs)]
    return assign_seeds(beacon, campaign_digest, plan.runs)
