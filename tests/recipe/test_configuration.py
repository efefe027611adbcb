"""The configuration: round trip, digest, overrides, and what it refuses."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.recipe.configuration import FIELDS, Configuration
from fourmin.recipe.presets import load_preset
from fourmin.recipe.settings import parse_settings
from fourmin.recipe.steps import with_step


@pytest.fixture
def digits() -> Configuration:
    return load_preset("digits").resolved(0, keep_workers=True)


def test_json_gives_the_same_configuration_back(digits: Configuration) -> None:
    through_json = json.loads(json.dumps(digits.to_json()))
    assert Configuration.from_json(through_json) == digits
    # RFC 8785 writes 16.0 as 16: the digest must not tell them apart, nor the reader.
    through_json["base_learning_rate"] = 16
    assert Configuration.from_json(through_json) == digits
    assert Configuration.from_json(through_json).digest() == digits.digest()


def test_the_digest_is_the_sha256_of_canonical_json_and_changes_with_every_field(
    digits: Configuration,
) -> None:
    import rfc8785

    assert digits.digest() == hashlib.sha256(rfc8785.dumps(digits.to_json())).hexdigest()
    changed = {
        str: "other", int: 12345, float: 0.123, bool: None, int | None: 7,
        tuple[float, ...]: (1.0, 2.0, 3.5), tuple[str, ...]: ("0:ring",),
    }  # fmt: skip
    for field in dataclasses.fields(digits):
        old = getattr(digits, field.name)
        new = (not old) if isinstance(old, bool) else changed[FIELDS[field.name].type]
        assert dataclasses.replace(digits, **{field.name: new}).digest() != digits.digest()


def test_a_batch_that_workers_cannot_share_names_counts_that_fit(digits: Configuration) -> None:
    with pytest.raises(FourminError) as caught:
        dataclasses.replace(digits, procs_per_node=3).check()
    assert "64 images cannot be shared equally by 3 workers" in caught.value.what
    assert "1, 2, 4, 8" in caught.value.next_step
    assert "global_batch_size=63 or 66" in caught.value.next_step
    with pytest.raises(FourminError, match="in 5 accumulation steps"):
        dataclasses.replace(digits, gradient_accumulation_steps=5).check()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_batch_size": 2**53 - 1}, "cannot be shared equally by 2 workers"),
        (
            {"nodes": 2**53 - 1, "procs_per_node": 1, "global_batch_size": 2**53 - 1, "bn_span": 2},
            "bn_span=2 does not fit",
        ),
        ({"decay_poly_power": -1.0}, "must be at least 0"),
    ],
)
def test_numbers_without_end_are_refused_at_once(
    digits: Configuration, changes: dict[str, int], message: str
) -> None:
    """As they may stand in somebody else's campaign.json, which is validated."""
    with pytest.raises(FourminError, match=message):
        dataclasses.replace(digits, **changes).check()


@pytest.mark.parametrize("name", ["decay_epochs", "warmup_epochs", "base_learning_rate"])
def test_a_number_from_which_nothing_can_be_counted_is_out_of_range(
    digits: Configuration, name: str
) -> None:
    with pytest.raises(FourminError, match=f"{name}=1e.308 is out of range"):
        Configuration.from_json(digits.to_json() | {name: 1e308})


@given(batch=st.integers(1, 4096), workers=st.integers(1, 64), accumulation=st.integers(1, 8))
def test_batches_pass_exactly_when_they_divide(batch: int, workers: int, accumulation: int) -> None:
    configuration = dataclasses.replace(
        load_preset("digits").resolved(0, keep_workers=True),
        global_batch_size=batch,
        procs_per_node=workers,
        gradient_accumulation_steps=accumulation,
    )
    if batch % (workers * accumulation) == 0:
        configuration.check()
        assert configuration.local_batch_size * workers * accumulation == batch
    else:
        with pytest.raises(FourminError):
            configuration.check()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("optimizer", "adam"),
        ("learning_rate_decay", "cosine"),
        ("warmup_shape", "cubic"),
        ("precision", "fp8"),
        ("max_epochs", 0),
        ("weight_decay", -0.1),
        ("momentum", 1.5),
        ("label_smoothing", -1.0),
        ("pixel_std", (1.0, 0.0, 1.0)),
        ("pixel_mean", (1.0,)),
        ("max_steps", 0),
        ("allreduce", "tree"),
    ],
)
def test_what_can_never_run_is_refused(digits: Configuration, field: str, value: object) -> None:
    with pytest.raises(FourminError, match=field):
        dataclasses.replace(digits, **{field: value}).check()


@pytest.mark.parametrize(
    ("flags", "precision"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16", "bf16"),
        ("flags\t\t: fpu avx2 avx512f amx_bf16 amx_tile", "bf16"),
        ("Features\t: fp asimd i8mm bf16", "bf16"),
        ("flags\t\t: fpu avx2 avx512f", "fp32"),
        ("", "fp32"),
    ],
)
def test_the_machine_decides_device_precision_and_workers(
    flags: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = load_preset("digits")
    monkeypatch.setattr(Path, "read_text", lambda path: flags)
    assert preset.device == preset.precision == "auto"
    on_cpu = preset.resolved(0, keep_workers=False)
    assert (on_cpu.device, on_cpu.precision) == ("cpu", precision)
    one_gpu = preset.resolved(1, keep_workers=False)
    assert (one_gpu.device, one_gpu.precision, one_gpu.procs_per_node) == ("cuda", "fp16", 1)
    assert preset.resolved(8, keep_workers=False).procs_per_node == 2
    assert preset.resolved(1, keep_workers=True).procs_per_node == 2


def test_the_fast_step_shares_statistics_in_every_model() -> None:
    shared = {"step": "fast", "device": "cuda", "precision": "fp16", "bn_span": 2}
    shared |= {"nodes": 2, "procs_per_node": 8, "decoder": "mixed"}
    for name in ("resnet50-64k", "alexnet-64k"):
        dataclasses.replace(load_preset(name), **shared).check()


def test_fp16_on_the_cpu_is_refused(digits: Configuration) -> None:
    with pytest.raises(FourminError, match="fp16 needs a GPU"):
        dataclasses.replace(digits, precision="fp16").check()


@pytest.mark.parametrize("data", [{}, {"nonsense": 1}])
def test_an_incomplete_or_foreign_configuration_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(FourminError):
        Configuration.from_json(data)


@pytest.mark.parametrize(
    ("device", "loader", "decoder"),
    [("cpu", "dali", "cpu"), ("cuda", "dali", "mixed"), ("cuda", "torchvision", "cpu")],
)
def test_a_configuration_of_before_the_decoder_could_be_chosen(
    device: str, loader: str, decoder: str
) -> None:
    data = dataclasses.replace(load_preset("digits"), device=device, loader=loader).to_json()
    del data["decoder"]
    assert Configuration.from_json(data).decoder == decoder


def test_a_configuration_of_before_the_decoded_cache_has_none() -> None:
    data = load_preset("digits").to_json()
    del data["decoded_cache"]
    assert Configuration.from_json(data).decoded_cache == 0


def test_a_decoded_cache_is_not_negative_and_not_for_what_the_gpu_decodes(
    digits: Configuration,
) -> None:
    dataclasses.replace(digits, decoded_cache=64).check()
    with pytest.raises(FourminError, match="decoded_cache must be at least 0, not -1"):
        dataclasses.replace(digits, decoded_cache=-1).check()
    on_gpu = dataclasses.replace(digits, device="cuda", precision="fp16", decoder="mixed")
    on_gpu.check()
    with pytest.raises(FourminError, match="decoded_cache needs decoder=cpu") as caught:
        dataclasses.replace(on_gpu, decoded_cache=1).check()
    assert "stays there" in caught.value.why
    assert "--set decoder=cpu" in caught.value.next_step


def test_with_a_decoded_cache_the_machine_decides_for_the_cpu_decoder() -> None:
    preset = load_preset("digits")
    assert preset.resolved(1, keep_workers=False).decoder == "mixed"
    cached = preset.with_overrides(parse_settings(["decoded_cache=64"]))
    resolved = cached.resolved(1, keep_workers=False)
    assert (resolved.decoded_cache, resolved.decoder) == (64, "cpu")
    with_step(resolved, "").check()
