"""Initial weights: exact, independent of the machine, and right in distribution."""

from __future__ import annotations

import hashlib
import math
import statistics
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fourmin.base.errors import FourminError
from fourmin.training.models import build_model
from fourmin.training.models import init as init_module
from fourmin.training.models.init import (
    initialize,
    natural_log,
    normal_quantile,
    normals,
    weights_digest,
)
from fourmin.training.models.resnet import ResidualBlock

NORMAL = statistics.NormalDist()


def make(name="resnet8", classes=10):
    return build_model(name, num_classes=classes, bn_momentum=0.1, bn_epsilon=1e-5)


def philox_outputs(key, count):
    """Philox4x64-10 in plain integers, from Salmon et al. 2011; numpy starts at counter 1."""
    mask = (1 << 64) - 1
    outputs = []
    counter = 1
    while len(outputs) < count:
        c0, c1, c2, c3 = (counter >> shift & mask for shift in (0, 64, 128, 192))
        k0, k1 = key
        for _ in range(10):
            first, second = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
            c0, c1, c2, c3 = (
                (second >> 64) ^ c1 ^ k0,
                second & mask,
                (first >> 64) ^ c3 ^ k1,
                first & mask,
            )
            k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
        outputs += [c0, c1, c2, c3]
        counter += 1
    return outputs[:count]


@pytest.mark.parametrize("seed", [0, 1, 4294967295, 2**64 - 1])
def test_normals_agree_with_a_second_implementation(seed):
    name = "layer1.0.conv1.weight"
    key = (seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    expected = [NORMAL.inv_cdf((2 * (raw >> 12) + 1) / 2**53) for raw in philox_outputs(key, 1003)]
    np.testing.assert_allclose(normals(seed, name, 1003), expected, rtol=1e-14, atol=0)


def test_quantile_accuracy_over_the_whole_range():
    tiny = 2.0 ** -np.arange(1.0, 54.0)
    p = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 20001), tiny, 1 - tiny[1:]])
    expected = np.array([NORMAL.inv_cdf(value) for value in p])
    np.testing.assert_allclose(normal_quantile(p), expected, rtol=1e-14, atol=1e-15)
    # The ends of the three ranges of AS 241: |p - 1/2| = 0.425, sqrt(-ln p) = 5.
    for edge in (0.075, math.exp(-25.0)):
        near = np.array([edge * (1 - 1e-12), edge, edge * (1 + 1e-12)])
        assert np.ptp(normal_quantile(near)) < 1e-10


def test_quantile_inverts_the_distribution_function():
    x = np.linspace(-8.0, -0.01, 500)
    p = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x])
    np.testing.assert_allclose(normal_quantile(p), x, rtol=2e-14)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**52 - 1))
def test_quantile_is_finite_and_odd_in_every_cell(cell):
    p = (2.0 * cell + 1.0) * 2.0**-53
    assert p == (2 * cell + 1) / 2**53
    assert 0.0 < p < 1.0
    low, high = normal_quantile(np.array([p, 1.0 - p]))
    assert math.isfinite(low)
    assert low == -high


@settings(max_examples=300, deadline=None)
@given(st.floats(min_value=1e-300, max_value=1e300))
def test_natural_log(x):
    assert natural_log(np.array([x]))[0] == pytest.approx(math.log(x), rel=4e-16, abs=1e-16)


def test_chunks_do_not_change_the_numbers(monkeypatch):
    whole = normals(7, "w", 5000)
    monkeypatch.setattr(init_module, "CHUNK", 37)
    np.testing.assert_array_equal(normals(7, "w", 5000), whole)


def test_position_decides_not_the_size():
    np.testing.assert_array_equal(normals(7, "w", 5000)[:100], normals(7, "w", 100))


def test_seed_and_name_both_matter():
    streams = [normals(s, n, 4).tolist() for s in (1, 2) for n in ("a.weight", "b.weight")]
    assert len({tuple(stream) for stream in streams}) == 4


def test_moments():
    plain, cut = normals(3, "w", 200_000), normals(3, "w", 200_000, truncated=True)
    assert abs(plain.mean()) < 4 / math.sqrt(200_000)
    assert plain.std() == pytest.approx(1.0, abs=0.007)
    assert np.abs(plain).max() > 3.5
    assert np.abs(cut).max() <= 2.0
    # The standard deviation that Goyal's and MLPerf's code divide by.
    assert cut.std() == pytest.approx(0.87962566103423978, abs=0.006)


def test_truncation_uses_the_distribution_function_at_two():
    below = init_module._PHI_MINUS_2
    assert below == pytest.approx(0.5 * math.erfc(math.sqrt(2.0)), rel=1e-15)


# Frozen: these may change only with a new initialization, which makes old results unverifiable.
FROZEN = {
    ("he", False): "c83be9403cfb1cfdd2e4a675717021560946ab356b3ccfc06e4b7a0fdce09b5d",
    ("he", True): "f4e04db0322179628e5e92d0c66c9bd7ba6edd87a70db885847dd9fb20a3e034",
    ("truncated-normal", False): "e93e277697f6a72206f3c209bf218b7533f6c70c17c325ada1fdb9034f466b6c",
}


@pytest.mark.parametrize(("scheme", "zero"), FROZEN)
def test_the_frozen_digests(scheme, zero):
    model = make()
    initialize(model, 1, scheme, zero)
    assert weights_digest(model) == FROZEN[scheme, zero]


def test_initialize_forgets_what_was_there():
    model = make()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.fill_(3)
    initialize(model, 1, "he", False)
    assert weights_digest(model) == FROZEN["he", False]


def test_he_scale_and_constants():
    model = make()
    initialize(model, 11, "he", False)
    conv = model.get_parameter("layer3.0.conv2.weight")  # [64, 64, 3, 3]
    assert conv.std().item() == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.02)
    conv = model.get_parameter("layer3.0.conv1.weight")  # [64, 32, 3, 3]: fan_out, not fan_in
    assert conv.std().item() == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.03)
    assert model.fc.weight.std().item() == pytest.approx(0.01, rel=0.1)
    assert not model.fc.bias.any()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert not module.bias.any()
            assert not module.running_mean.any()
            assert (module.running_var == 1).all()


def test_truncated_normal_scale():
    model = make()
    initialize(model, 11, "truncated-normal", False)
    conv = model.get_parameter("layer3.0.conv1.weight")  # fan_in 32 * 9
    std = math.sqrt(1 / (32 * 9))
    assert conv.std().item() == pytest.approx(std, rel=0.02)
    assert conv.abs().max().item() <= 2 * std / 0.87962566103423978 * (1 + 1e-6)
    assert model.fc.weight.abs().max().item() > 0.02  # plain normal, std 0.01


def test_grouped_convolution_counts_its_own_inputs_and_outputs():
    layer = nn.Conv2d(96, 256, 5, groups=2)
    initialize(nn.Sequential(layer), 1, "he", False)
    assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / (128 * 25)), rel=0.02)
    assert not layer.bias.any()


def test_zero_last_gamma_is_the_last_of_each_block_only():
    model = make("resnet20")
    initialize(model, 1, "he", True)
    last = {id(b.last_batch_norm) for b in model.modules() if isinstance(b, ResidualBlock)}
    assert len(last) == 9
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            expected = 0.0 if id(module) in last else 1.0
            assert (module.weight == expected).all()
    assert model.layer2[0].bn2 in [m for m in model.modules() if id(m) in last]


def test_digest_sees_every_bit_and_every_buffer():
    model = make()
    initialize(model, 1, "he", False)
    seen = {weights_digest(model)}
    with torch.no_grad():
        model.fc.weight[0, 0] = torch.nextafter(model.fc.weight[0, 0], torch.tensor(1.0))
        seen.add(weights_digest(model))
        model.bn1.running_var[3] += 1e-6
        seen.add(weights_digest(model))
        model.bn1.num_batches_tracked += 1
        seen.add(weights_digest(model))
    assert len(seen) == 4


def test_digest_by_hand():
    layer = nn.Sequential(nn.Conv2d(1, 1, (1, 2), bias=False), nn.BatchNorm2d(1))
    with torch.no_grad():
        layer[0].weight.copy_(torch.tensor([[[[1.0, -2.0]]]]))
        layer[1].num_batches_tracked.fill_(5)
    text = b"0.weight\x001,1,1,2\x00" + struct.pack("<2f", 1.0, -2.0)
    for name, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
        text += f"1.{name}\0".encode() + b"1\x00" + struct.pack("<f", value)
    text += b"1.num_batches_tracked\x00\x00" + struct.pack("<q", 5)
    assert weights_digest(layer) == hashlib.sha256(text).hexdigest()


def test_digest_and_weights_do_not_depend_on_the_memory_format():
    model = make().to(memory_format=torch.channels_last)
    initialize(model, 1, "he", False)
    assert not model.layer1[0].conv1.weight.is_contiguous()
    assert weights_digest(model) == FROZEN["he", False]


def test_unknown_scheme_lists_the_known_ones():
    with pytest.raises(FourminError, match="truncated-normal"):
        initialize(make(), 1, "xavier", False)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_out_of_range(seed):
    with pytest.raises(FourminError, match="seed"):
        initialize(make(), seed, "he", False)


def test_a_layer_that_no_scheme_covers_is_refused():
    with pytest.raises(TypeError, match="LayerNorm"):
        initialize(nn.Sequential(nn.LayerNorm(4)), 1, "he", False)


@pytest.mark.gpu
def test_same_digest_on_the_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    model = make().to("cuda", memory_format=torch.channels_last)
    initialize(model, 1, "he", False)
    assert weights_digest(model) == FROZEN["he", False]
