"""System profiles: those that come along, and what is said of a wrong one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.cli.main import app
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
    optional = (
        profile.memory_bandwidth, profile.nvls_bandwidth, profile.storage_bandwidth,
        profile.decode_rate,
    )  # fmt: skip
    assert len(profile.sources) == 2 + 2 + sum(map(bool, optional))


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(WHOLE)
    profile = load_profile(str(path))
    assert (profile.name, profile.adapters, profile.nvls_bandwidth) == ("mine", 1, 0)
    assert profile.compute[0].seconds == pytest.approx(256 / 3000)
    assert (profile.storage_bandwidth, profile.decode_rate) == (None, None)
    # What says more of the software than of the machine is taken from where it was measured.
    known = load_profile("dgx-h100")
    measured = (known.round_seconds, known.call_seconds)
    assert (profile.round_seconds, profile.call_seconds) == measured
    assert dict(profile.sources)["a round of messages"].startswith("as on dgx-h100: ")


def test_the_documented_file_can_be_used(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "estimate.md"
    (documented,) = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(documented)
    arguments = ["estimate", "--preset", "resnet50-64k", "--nodes", "256"]
    result = CliRunner().invoke(app, [*arguments, "--system-profile", str(path)])
    assert result.exit_code == 0, result.exception
    assert load_profile(str(path)).title in result.stdout


def test_optional_numbers_are_taken_with_their_sources(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    more = {
        "nvls": ("bytes_per_second", 4e11),
        "round": ("seconds", 1e-4),
        "call": ("seconds", 2e-5),
        "storage": ("bytes_per_second", 2e9),
        "decode": ("images_per_second", 9e3),
    }
    tables = [f'[{k}]\n{name} = {value}\nsource = "of {k}"\n' for k, (name, value) in more.items()]
    path.write_text(WHOLE + "".join(tables))
    found = load_profile(str(path))
    numbers = (found.nvls_bandwidth, found.round_seconds, found.call_seconds,
               found.storage_bandwidth, found.decode_rate)  # fmt: skip
    assert numbers == (4e11, 1e-4, 2e-5, 2e9, 9e3)
    assert [source for _, source in found.sources[2:]] == [f"of {key}" for key in more]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("workers_per_node = 4", "", "workers_per_node"),
        ("workers_per_node = 4", "workers_per_node = -4", "workers_per_node"),
        ('kind = "nvlink"', 'kind = "pigeon"', "inside.kind"),
        ("bytes_per_second = 50e9", "bytes_per_second = nan", "between.bytes_per_second"),
        ("bytes_per_second = 50e9", "bytes_per_second = inf", "between.bytes_per_second"),
        ("bytes_per_second = 50e9", "bytes_per_second = true", "between.bytes_per_second"),
        ("batch = 256", f"batch = {10**400}", "compute 1.batch"),
        ("batch = 256", "batch = 0.5", "compute 1.batch"),
        ("bytes_per_second = 50e9", "bandwidth = 50e9", "between.bandwidth"),
        ('title = "mine"', "title = 3", "title"),
        ("batch = 256", "", "compute 1.batch"),
        ("batch = 256", "batch = 256\ntypo = 1", "compute 1.typo"),
        ("[[compute]]", "[compute]", "compute"),
        ("[inside]", "inside = 3\n[other]", "other"),
        ('title = "mine"', 'title = "mine"\nnccl_algorithms = ["star"]', "nccl_algorithms"),
        ('title = "mine"', 'title = "mine', "cannot read"),
        ("[[compute]]", '[call]\nseconds = 0\nsource = "x"\n[[compute]]', "call.seconds"),
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
