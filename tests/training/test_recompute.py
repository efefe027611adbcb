"""Residual blocks that run again in the backward pass: the same bits, for less memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fourmin.base.errors import FourminError
from fourmin.estimate.profile import load_profile
from fourmin.estimate.step import estimate_step, evaluation_seconds
from fourmin.recipe.presets import load_preset
from fourmin.recipe.steps import with_step
from fourmin.ruleset import load_ruleset
from fourmin.training.models import build_model
from fourmin.training.models.batchnorm import SpanBatchNorm2d
from fourmin.training.models.init import initialize
from fourmin.training.models.resnet import BasicBlock, recompute_blocks


def trained(
    name: str, precision: torch.dtype, *, recompute: bool
) -> tuple[dict[str, Tensor], dict[str, Tensor], int]:
    """Gradients and state after two steps, and the bytes that autograd kept for the second one."""
    model = build_model(name, num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    initialize(model, 5, "he", True)
    model.to(memory_format=torch.channels_last).train()
    if recompute:
        recompute_blocks(model)
    generator = torch.Generator().manual_seed(7)
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    for _ in range(2):
        images = torch.randn(3, 3, 16, 16, generator=generator)
        labels = torch.randint(0, 10, (3,), generator=generator)
        model.zero_grad()
        kept = 0
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            with torch.autocast("cpu", precision, enabled=precision != torch.float32):
                logits = model(images)
            loss = functional.cross_entropy(logits.float(), labels)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return gradients, model.state_dict(), kept


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("resnet8", torch.float32), ("resnet8", torch.bfloat16), ("resnet50-tiny", torch.float32),
    ],
)  # fmt: skip
def test_the_same_bits_and_less_is_kept(name: str, precision: torch.dtype) -> None:
    """Gradients, weights, running statistics and their counts."""
    plain = trained(name, precision, recompute=False)
    again = trained(name, precision, recompute=True)
    for expected, found in zip(plain[:2], again[:2], strict=True):
        assert expected.keys() == found.keys()
        for key, tensor in expected.items():
            assert torch.equal(tensor, found[key]), key
    assert again[2] < plain[2] * (0.6 if name == "resnet8" else 0.3)


def test_shared_statistics_see_a_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor, group=None: None)
    states = []
    for recompute in (False, True):
        torch.manual_seed(1)
        block = BasicBlock(3, 4, 2, SpanBatchNorm2d)
        block.recomputed = recompute
        block(torch.randn(4, 3, 5, 5, requires_grad=True)).sum().backward()
        states.append(block.state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert int(states[1]["bn2.num_batches_tracked"]) == 1


def test_evaluation_and_the_module_tree_do_not_change() -> None:
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    names = list(model.state_dict())
    images = torch.randn(2, 3, 16, 16)
    model.eval()
    with torch.no_grad():
        expected = model(images)
        recompute_blocks(model)
        assert torch.equal(model(images), expected)
    assert list(model.state_dict()) == names
    assert {m.momentum for m in model.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


def test_it_is_closed_and_not_for_the_fast_step_or_alexnet() -> None:
    gpu: dict[str, Any] = {"device": "cuda", "precision": "bf16", "decoder": "mixed"}
    one = replace(load_preset("resnet50-256"), recompute=True, **gpu)
    assert with_step(one, "").step == "eager"
    with_step(one, "").check()
    with pytest.raises(FourminError, match="recompute"):
        replace(one, step="fast").check()
    with pytest.raises(FourminError, match="no residual blocks"):
        replace(load_preset("alexnet-512"), recompute=True, step="eager", **gpu).check()
    benchmark = load_ruleset().benchmark("resnet50")
    assert benchmark.closed_violations(one.to_json()) == []


def test_an_estimate_takes_a_forward_pass_more_and_evaluates_as_before() -> None:
    profile = load_profile("dgx-h100")
    gpu: dict[str, Any] = {"device": "cuda", "precision": "fp16", "step": "eager"}
    one = replace(load_preset("resnet50-256"), **gpu)
    plain, again = (estimate_step(replace(one, recompute=r), profile) for r in (False, True))
    assert again.time.compute == pytest.approx(plain.time.compute * 4 / 3)
    assert evaluation_seconds(again, 50_000) == pytest.approx(evaluation_seconds(plain, 50_000))
