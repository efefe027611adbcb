"""Which step a run gets where the fast one cannot be had."""

from __future__ import annotations

import pytest
import torch
from fast_cases import make, rate
from torch import nn

from fourmin.training.fast.choose import build_step, reason_against
from fourmin.training.optim.lars import Lars
from fourmin.training.precision import Precision
from fourmin.training.step import EagerStep


def test_the_cpu_gets_the_eager_step_and_is_told_why() -> None:
    device = torch.device("cpu")
    parts = make("eager", "resnet8", device, "bf16")
    said: list[str] = []
    step = build_step(
        "fast", parts.model, Lars(parts.model.parameters(), lr=1.0), parts.reducer,
        parts.precision, rate, 0.1, total_steps=4, growth_interval=4, world_size=1,
        say=said.append,
    )  # fmt: skip
    assert isinstance(step, EagerStep)
    assert said == [
        "step: eager instead of fast, since it needs a CUDA GPU, and this run uses the cpu"
    ]
    said.clear()
    step = build_step(
        "eager", parts.model, Lars(parts.model.parameters(), lr=1.0), parts.reducer,
        parts.precision, rate, 0.1, total_steps=4, growth_interval=4, world_size=1,
        say=said.append,
    )  # fmt: skip
    assert isinstance(step, EagerStep)
    assert not said
    parts.reducer.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_reasons_on_a_gpu() -> None:
    model = make("eager", "resnet8", torch.device("cuda"), "fp16").model
    lars = Lars(model.parameters(), lr=1.0)
    half = Precision("fp16", "cuda")
    assert reason_against(model, lars, half) is None
    assert "fp32" in (reason_against(model, lars, Precision("fp32", "cuda")) or "")
    adam = torch.optim.Adam(model.parameters())
    assert "Adam" in (reason_against(model, adam, half) or "")
    assert "Sequential" in (reason_against(nn.Sequential(model), lars, half) or "")
