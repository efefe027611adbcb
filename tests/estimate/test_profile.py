"""System profiles: those that come along, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fourmin.base.errors import FourminError
from fourmin.estimate.profile import load_profile, profile_names

WHOLE = """
title = "mine"
workers_per_node = 4
[inside]
kind = "nvlink"
bytes_per_second = 240e9
source = "measured"
[between]
bytes_per_second = 50e9
source = "measured"
[[compute]]
model = "resnet50"
precision = "fp16"
batch = 256
images_per_second = 3000
source = "measured"
"""


@pytest.mark.parametrize("name", profile_names())
def test_every_number_has_a_source(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert all(source for _, source in profile.sources)
    assert all(one.source for one in profile.compute)
    assert len(profile.sources) == 2 + (profile.round_seconds is not None) + (
        profile.call_seconds > 0
    )


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(WHOLE)
    profile = load_profile(str(path))
    assert (profile.name, profile.adapters, profile.round_seconds) == ("mine", 1, None)
    assert profile.compute[0].seconds == pytest.approx(256 / 3000)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("workers_per_node = 4", "", "workers_per_node"),
        ("workers_per_node = 4", "workers_per_node = -4", "workers_per_node"),
        ('kind = "nvlink"', 'kind = "pigeon"', "inside.kind"),
        ("bytes_per_second = 50e9", "bytes_per_second = nan", "between.bytes_per_second"),
        ("bytes_per_second = 50e9", "bytes_per_second = inf", "between.bytes_per_second"),
        ("bytes_per_second = 50e9", "bytes_per_second = true", "between.bytes_per_second"),
        ("bytes_per_second = 50e9", "bandwidth = 50e9", "between.bandwidth"),
        ('title = "mine"', "title = 3", "title"),
        ("batch = 256", "", "compute 1.batch"),
        ("batch = 256", "batch = 256\ntypo = 1", "compute 1.typo"),
        ("[[compute]]", "[compute]", "compute"),
        ("[inside]", "inside = 3\n[other]", "other"),
        ('title = "mine"', 'title = "mine"\nnccl_algorithms = ["star"]', "nccl_algorithms"),
        ('title = "mine"', 'title = "mine', "cannot read"),
    ],
)
def test_a_wrong_file_is_refused_and_the_key_named(
    old: str, new: str, named: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(FourminError) as error:
        load_profile(str(path))
    assert named in str(error.value)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(FourminError, match="p40-100gbe"):
        load_profile("cray-1")
