"""Which parameters LARS adapts and decays, and what a configuration becomes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fourmin.training.models import build_model
from fourmin.training.optim import Lars, build_optimizer, set_learning_rate, split_parameters


def config(**changes):
    values = {
        "optimizer": "lars",
        "base_learning_rate": 16.0,
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 5e-5,
        "lars_eta": 0.002,
        "lars_epsilon": 0.0,
        "lars_clip": False,
        "gradient_density": 1.0,
        "exclude_bias_and_bn": True,
    }
    return SimpleNamespace(**values | changes)


def model(name="resnet8", classes=10):
    return build_model(name, num_classes=classes, bn_momentum=0.1, bn_epsilon=1e-5)


@pytest.mark.parametrize(
    ("name", "adapted", "plain"),
    [
        ("resnet8", 7 + 2 + 1, 2 * 9 + 1),  # convolutions, projections, linear; BN and bias
        ("resnet50", 53 + 1, 2 * 53 + 1),  # 161 tensors together
        ("alexnet", 8, 8 + 2 * 5),
    ],
)
def test_split(name, adapted, plain):
    with torch.device("meta"):
        network = model(name)
    first, second = split_parameters(network)
    assert (len(first), len(second)) == (adapted, plain)
    assert all(p.ndim >= 2 for p in first)
    assert all(p.ndim == 1 for p in second)
    assert {*first, *second} == set(network.parameters())


def test_split_goes_by_type_not_by_name():
    network = nn.Sequential()
    network.add_module("bias", nn.Linear(3, 3))  # a weight called bias.weight
    network.add_module("bn_like", nn.Conv2d(1, 1, 1, bias=False))
    network.add_module("conv_scale", nn.BatchNorm1d(3))
    adapted, plain = split_parameters(network)
    assert adapted == [network.get_parameter("bias.weight"), network.bn_like.weight]
    assert plain == [
        network.get_parameter("bias.bias"), network.conv_scale.weight, network.conv_scale.bias
    ]  # fmt: skip


def test_split_knows_synchronised_batch_norm():
    layer = nn.SyncBatchNorm(3)
    assert split_parameters(nn.Sequential(layer)) == ([], [layer.weight, layer.bias])


def test_split_skips_frozen_and_repeated_parameters():
    shared = nn.Linear(2, 2)
    frozen = nn.Linear(2, 2)
    frozen.weight.requires_grad_(False)
    adapted, plain = split_parameters(nn.Sequential(shared, frozen, shared))
    assert adapted == [shared.weight]
    assert plain == [shared.bias, frozen.bias]


def test_split_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="PReLU"):
        split_parameters(nn.Sequential(nn.PReLU()))


def test_lars_groups():
    optimizer = build_optimizer(model(), config(lars_clip=True, lars_epsilon=1e-9))
    assert isinstance(optimizer, Lars)
    adapted, plain = optimizer.param_groups
    assert (adapted["adapt"], adapted["weight_decay"]) == (True, 5e-5)
    assert (plain["adapt"], plain["weight_decay"]) == (False, 0.0)
    for group in (adapted, plain):
        assert (group["lr"], group["momentum"], group["eta"]) == (16.0, 0.9, 0.002)
        assert (group["clip"], group["epsilon"]) == (True, 1e-9)


def test_without_the_exclusion_everything_is_adapted_and_decayed():
    optimizer = build_optimizer(model(), config(exclude_bias_and_bn=False))
    assert [(g["adapt"], g["weight_decay"]) for g in optimizer.param_groups] == [(True, 5e-5)] * 2


@pytest.mark.parametrize(("exclude", "decay"), [(True, 0.0), (False, 5e-5)])
def test_sgd_groups(exclude, decay):
    optimizer = build_optimizer(
        model(), config(optimizer="sgd", nesterov=True, exclude_bias_and_bn=exclude)
    )
    assert isinstance(optimizer, torch.optim.SGD)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [5e-5, decay]
    assert all(g["nesterov"] and g["foreach"] for g in optimizer.param_groups)


def test_set_learning_rate_keeps_a_tensor_in_place():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = Lars([parameter], torch.tensor(1.0))
    tensor = optimizer.param_groups[0]["lr"]
    set_learning_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] is tensor
    assert tensor.item() == 0.25
    optimizer = build_optimizer(model(), config())
    set_learning_rate(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]
