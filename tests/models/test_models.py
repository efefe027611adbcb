"""The networks: parameter counts, shapes, arithmetic against torchvision, operations counted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fourmin.base.errors import FourminError
from fourmin.training.models import MODEL_NAMES, build_model, forward_flops
from fourmin.training.models.init import initialize


def make(name, classes):
    return build_model(name, num_classes=classes, bn_momentum=0.1, bn_epsilon=1e-5)


@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [
        ("resnet8", 10, 78_042),
        ("resnet20", 10, 272_474),
        ("resnet50", 1000, 25_557_032),
        # Stem 3*64*9 instead of 3*64*49, and 200 classes instead of 1,000.
        ("resnet50-small", 200, 25_557_032 - 3 * 64 * (49 - 9) - 800 * 2049),
        ("resnet50-tiny", 200, 25_557_032 - 3 * 64 * (49 - 9) - 800 * 2049),
        ("alexnet", 1000, 60_965_224 + 2_752),
    ],
)
def test_parameter_counts(name, classes, parameters):
    with torch.device("meta"):
        model = make(name, classes)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_every_model_is_covered_by_the_counts_above():
    assert set(MODEL_NAMES) == {
        "resnet8",
        "resnet20",
        "resnet50",
        "resnet50-small",
        "resnet50-tiny",
        "alexnet",
    }


def test_unknown_model_lists_the_known_ones():
    with pytest.raises(FourminError) as caught:
        make("resnet18", 10)
    assert all(name in str(caught.value) for name in MODEL_NAMES)


def test_batch_norm_settings_reach_every_layer():
    model = build_model("resnet20", num_classes=10, bn_momentum=0.25, bn_epsilon=1e-3)
    layers = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(layers) == 21  # 19 convolutions and 2 projections
    assert {(m.momentum, m.eps) for m in layers} == {(0.25, 1e-3)}


@pytest.mark.parametrize("name", ["resnet8", "resnet20"])
@pytest.mark.parametrize("size", [16, 32])
def test_small_models_run_and_train(name, size):
    model = make(name, 7)
    logits = model(torch.randn(3, 3, size, size))
    assert logits.shape == (3, 7)
    logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_resnet50_is_torchvisions():
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    torch.manual_seed(0)
    reference = torchvision.models.resnet50(num_classes=10).eval()
    model = make("resnet50", 10).eval()
    model.load_state_dict(reference.state_dict())
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(model(images), reference(images), rtol=1e-4, atol=1e-4)


def test_v1_5_has_the_stride_on_the_3x3():
    with torch.device("meta"):
        block = make("resnet50", 10).layer2[0]
    assert block.conv1.stride == (1, 1)
    assert block.conv2.stride == (2, 2)
    assert block.downsample[0].stride == (2, 2)


def test_small_stem_keeps_the_resolution():
    with torch.device("meta"):
        model = make("resnet50-small", 200)
        features = model.maxpool(model.conv1(torch.empty(1, 3, 64, 64)))
    assert features.shape == (1, 64, 64, 64)


def test_resnet8_has_no_projection_in_its_first_stage():
    model = make("resnet8", 10)
    assert model.layer1[0].downsample is None
    assert isinstance(model.layer2[0].downsample[1], nn.BatchNorm2d)


def alexnet_order():
    """The names of the leaf modules in the order in which a forward pass calls them."""
    with torch.device("meta"):
        model = make("alexnet", 10)
        order = []
        for name, module in model.named_modules():
            if name:
                module.register_forward_hook(lambda *_, name=name: order.append(name))
        model(torch.empty(2, 3, 227, 227))
    return order


def test_alexnet_normalises_after_pool5():
    assert " ".join(alexnet_order()) == (
        "conv1 pool bn1 conv2 pool bn2 conv3 bn3 conv4 bn4 conv5 pool bn5 "
        "fc6 dropout fc7 dropout fc8"
    )


def test_alexnet_relu_comes_before_the_normalization():
    with torch.device("meta"):
        model = make("alexnet", 10)
    # With beta 0, gamma 1, mean 0, variance 1 the normalization is the identity, so what FC6
    # sees is not negative only if ReLU came before; and it is negative if the mean is raised.
    model = model.to_empty(device="cpu")
    initialize(model, 1, "he", False)
    seen = []
    model.fc6.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0].min().item()))
    model.eval()
    with torch.no_grad():
        images = torch.randn(1, 3, 227, 227)
        model(images)
        model.bn5.running_mean.fill_(1.0)
        model(images)
    assert seen[0] >= 0.0
    assert seen[1] < 0.0


def test_alexnet_refuses_other_sizes():
    with torch.device("meta"), pytest.raises(FourminError, match="227"):
        make("alexnet", 10)(torch.empty(1, 3, 224, 224))


def test_dropout_follows_torchs_default_generator():
    with torch.device("meta"):
        dropout = make("alexnet", 10).dropout
    x = torch.ones(1000)
    torch.manual_seed(5)
    first = dropout(x)
    torch.manual_seed(5)
    torch.testing.assert_close(dropout(x), first, rtol=0, atol=0)
    assert 400 < int((first == 0).sum()) < 600


def test_logits_are_fp32_under_autocast():
    model = make("resnet8", 10)
    classifier_inputs = []
    model.fc.register_forward_pre_hook(lambda _m, x: classifier_inputs.append(x[0].dtype))
    conv_outputs = []
    model.conv1.register_forward_hook(lambda _m, _x, y: conv_outputs.append(y.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(torch.randn(4, 3, 16, 16))
    assert conv_outputs == [torch.bfloat16]  # autocast was on
    assert classifier_inputs == [torch.float32]
    assert logits.dtype == torch.float32
    # Values that BF16 cannot hold: the product itself was made in FP32.
    assert (logits != logits.bfloat16().float()).any()


@pytest.mark.parametrize(
    ("name", "size", "classes", "flops"),
    [
        # 4.089 G multiply-adds (torchvision's published count for this network: 4.09).
        ("resnet50", 224, 1000, 2 * 4_089_184_256),
        # conv1 55*55*34848 + conv2 27*27*307200 + conv3 13*13*884736 + conv4 13*13*663552
        # + conv5 13*13*442368 + fc 37748736 + 16777216 + 4096000
        (
            "alexnet", 227, 1000,
            2 * (3025 * 34848 + 729 * 307200 + 169 * (884736 + 663552 + 442368)
                 + 37748736 + 16777216 + 4096000),
        ),
        # stem 432, stage 1 2*2304, at 16x16; stage 2 4608+9216+512 at 8x8; stage 3 at 4x4; fc 640
        (
            "resnet8", 16, 10,
            2 * (256 * (432 + 4608) + 64 * (4608 + 9216 + 512) + 16 * (18432 + 36864 + 2048) + 640),
        ),
    ],
)  # fmt: skip
def test_forward_flops(name, size, classes, flops):
    assert forward_flops(name, size, classes) == flops


def test_forward_flops_of_an_unknown_model():
    with pytest.raises(FourminError, match="known models"):
        forward_flops("vgg", 224, 1000)
