"""HKDF against RFC 5869's vectors, and the assignment of seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import make_plan

from fourmin.ledger import seeds
from fourmin.ledger.seeds import assign_seeds, hkdf_sha256, new_beacon, planned_seeds

VECTORS = [  # RFC 5869, appendix A.1 to A.3: key, salt, info, length, output
    (
        "0b" * 22,
        "000102030405060708090a0b0c",
        "f0f1f2f3f4f5f6f7f8f9",
        42,
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        "".join(f"{i:02x}" for i in range(0x00, 0x50)),
        "".join(f"{i:02x}" for i in range(0x60, 0xB0)),
        "".join(f"{i:02x}" for i in range(0xB0, 0x100)),
        82,
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c6"
        "5e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    (
        "0b" * 22,
        "",
        "",
        42,
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
]
BEACON, DIGEST = "5e" * 32, "ab" * 32


@pytest.mark.parametrize(("key", "salt", "info", "length", "output"), VECTORS)
def test_rfc_5869(key: str, salt: str, info: str, length: int, output: str) -> None:
    found = hkdf_sha256(bytes.fromhex(key), bytes.fromhex(salt), bytes.fromhex(info), length)
    assert found.hex() == output


def test_a_seed_is_the_first_four_bytes() -> None:
    info = bytes.fromhex(DIGEST) + (2).to_bytes(4, "big")
    stream = hkdf_sha256(bytes.fromhex(BEACON), b"fourmin-seed-v1", info, 4)
    assert assign_seeds(BEACON, DIGEST, 3)[1] == int.from_bytes(stream, "big")


def test_known_seeds_stay_what_they_are() -> None:
    # A change here would make every campaign that was ever registered invalid.
    assert assign_seeds(BEACON, DIGEST, 5) == [
        4109870327, 3445043655, 3170825651, 2067274129, 104185218,
    ]  # fmt: skip


@given(st.binary(min_size=20, max_size=32), st.binary(min_size=32, max_size=32), st.integers(1, 9))
def test_seeds_are_distinct_and_32_bit(beacon: bytes, digest: bytes, runs: int) -> None:
    assigned = assign_seeds(beacon.hex(), digest.hex(), runs)
    assert len(set(assigned)) == runs
    assert all(0 <= seed < 2**32 for seed in assigned)
    assert assign_seeds(beacon.hex(), digest.hex(), runs + 1)[:runs] == assigned


def test_beacon_and_digest_and_run_all_matter() -> None:
    base = assign_seeds(BEACON, DIGEST, 2)
    assert base[0] != base[1]
    assert assign_seeds("5f" + BEACON[2:], DIGEST, 1)[0] != base[0]
    assert assign_seeds(BEACON, "ac" + DIGEST[2:], 1)[0] != base[0]


def test_a_repeated_seed_moves_on_in_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    same = b"\0\0\0\1" * 2 + b"\0\0\0\2" + b"\0\0\0\3"
    monkeypatch.setattr(seeds, "hkdf_sha256", lambda *_: same)
    assert assign_seeds(BEACON, DIGEST, 3) == [1, 2, 3]


@pytest.mark.parametrize(("beacon", "digest"), [("xyz", DIGEST), (BEACON, "None")])
def test_what_is_not_hex(beacon: str, digest: str) -> None:
    with pytest.raises(ValueError, match="hex"):
        assign_seeds(beacon, digest, 1)


def test_only_practice_may_name_its_first_seed() -> None:
    plan = make_plan(practice=True, runs=3, practice_seed=2**32 - 2)
    assert planned_seeds(plan, BEACON, DIGEST) == [2**32 - 2, 2**32 - 1, 0]
    assigned = assign_seeds(BEACON, DIGEST, 3)
    assert planned_seeds(replace(plan, practice=False), BEACON, DIGEST) == assigned
    assert planned_seeds(replace(plan, practice_seed=None), BEACON, DIGEST) == assigned


def test_beacons_are_random() -> None:
    assert len({new_beacon() for _ in range(50)}) == 50
    assert all(len(bytes.fromhex(new_beacon())) == 32 for _ in range(3))
