"""Autocast and dynamic loss scaling, on CPU tensors where no FP16 kernel is needed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD

from fourmin.base.errors import FourminError
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.native import NativeAllReduce
from fourmin.training.models import build_model
from fourmin.training.optim import Lars
from fourmin.training.precision import MAX_LOSS_SCALE, LossScaler, Precision
from fourmin.training.step import EagerStep, HostUpdate

CPU = torch.device("cpu")


def test_unknown_precision_lists_the_known_ones():
    with pytest.raises(FourminError, match="fp32, fp16, bf16"):
        Precision("fp8", "cpu")


def test_fp16_on_the_cpu_is_refused_with_a_way_out():
    with pytest.raises(FourminError, match="--precision bf16"):
        Precision("fp16", "cpu")


@pytest.mark.parametrize(("name", "expected"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_autocast_type_and_fp32_masters(name, expected):
    precision = Precision(name, "cpu")
    layer = nn.Linear(4, 4)
    for _ in range(2):  # a context for each step
        with precision.autocast():
            y = layer(torch.randn(2, 4))
        assert y.dtype == expected
        precision.scale(y.float().sum()).backward()
    assert layer.weight.dtype == torch.float32
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_without_loss_scaling_nothing_is_touched(name):
    precision = Precision(name, "cpu")
    loss = torch.tensor(2.5)
    assert precision.scale(loss) is loss
    buffer = torch.tensor([1.0, math.inf])
    assert precision.unscale_and_check([buffer])  # a non-finite loss is the worker's to see
    assert buffer.tolist() == [1.0, math.inf]
    precision.update(False)
    assert (precision.loss_scale, precision.skipped_steps) == (1.0, 0)
    assert precision.state_dict() == {}
    precision.load_state_dict({})


def test_batch_norm_statistics_and_loss_stay_fp32_under_bf16():
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    with Precision("bf16", "cpu").autocast():
        logits = model(torch.randn(4, 3, 16, 16))
        loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 3]))
    assert logits.dtype == loss.dtype == torch.float32
    assert all(t.dtype == torch.float32 for t in model.buffers() if t.is_floating_point())


def test_scale_and_unscale_round_nothing():
    scaler = LossScaler(CPU, 1024.0, 10)
    loss = torch.tensor(0.1, dtype=torch.float16)
    assert scaler.scale(loss).dtype == torch.float32
    assert scaler.scale(loss).item() == loss.item() * 1024
    gradients = torch.randn(1000)
    buffers = [gradients[:600] * 1024, gradients[600:] * 1024]
    assert scaler.unscale_and_check(buffers)
    assert torch.equal(torch.cat(buffers), gradients)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("where", [0, 1])
def test_one_bad_element_in_any_buffer_is_found(bad, where):
    scaler = LossScaler(CPU, 4.0, 10)
    buffers = [torch.ones(257), torch.ones(31)]
    buffers[where][-1] = bad
    assert not scaler.unscale_and_check(buffers)
    assert scaler.unscale_and_check([torch.ones(5)])  # and forgotten at the next step


def test_the_largest_finite_value_is_not_an_overflow():
    assert LossScaler(CPU, 1.0, 10).unscale_and_check([torch.full((3,), 3.4e38)])


def test_halves_on_overflow_and_doubles_after_good_steps():
    scaler = LossScaler(CPU, 64.0, 3)
    history = []
    for finite in [True, True, False, True, True, True, True, True, True, False, False]:
        scaler.update(finite)
        history.append(scaler.loss_scale)
    # The overflow starts the count anew.
    assert history == [64, 64, 32, 32, 32, 64, 64, 64, 128, 64, 32]
    assert scaler.skipped_steps == 3
    assert scaler.scale(torch.tensor(1.0)).item() == 32
    buffer = torch.tensor([32.0])
    scaler.unscale_and_check([buffer])
    assert buffer.item() == 1.0


def test_scale_stays_within_its_limits():
    scaler = LossScaler(CPU, 2.0, 1)
    for _ in range(4):
        scaler.update(False)
    assert scaler.loss_scale == 1.0
    assert scaler.skipped_steps == 4
    for _ in range(40):
        scaler.update(True)
    assert scaler.loss_scale == MAX_LOSS_SCALE


def test_state_goes_on_where_it_was():
    scaler = LossScaler(CPU, 64.0, 3)
    for finite in (False, True, True):
        scaler.update(finite)
    other = LossScaler(CPU, 1.0, 3)
    other.load_state_dict(scaler.state_dict())
    for each in (scaler, other):
        each.update(True)
    assert other.state_dict() == scaler.state_dict() == {
        "loss_scale": 64.0, "good_steps": 0, "skipped_steps": 1
    }  # fmt: skip
    assert other.scale(torch.tensor(1.0)).item() == 64.0


@pytest.mark.parametrize("scale", [0.0, 0.5, -2.0, math.inf, math.nan, 2.0**25])
def test_initial_scale_out_of_range(scale):
    with pytest.raises(FourminError, match="loss_scale"):
        LossScaler(CPU, scale, 10)


def test_growth_interval_out_of_range():
    with pytest.raises(FourminError, match="growth_interval"):
        LossScaler(CPU, 2.0, 0)


def test_scaled_step_equals_the_unscaled_one():
    """Trust ratios come from unscaled gradients: the weights are the same to the bit."""
    torch.manual_seed(0)
    results = []
    start, x = torch.randn(6, 4), torch.randn(8, 4)
    for scaler in (None, LossScaler(CPU, 1024.0, 10)):
        weight = nn.Parameter(start.clone())
        optimizer = Lars([weight], 0.5, weight_decay=1e-4)
        for _ in range(3):
            weight.grad = None
            loss = (x @ weight.t()).square().mean()
            (scaler.scale(loss) if scaler else loss).backward()
            if scaler:
                assert scaler.unscale_and_check([weight.grad.view(-1)])
            optimizer.step()
        results.append(weight.detach())
    assert torch.equal(*results)


class Overflowing(Precision):
    """FP32's numbers, FP16's way with them: the gradients of some steps are not finite."""

    def __init__(self, finite: list[bool]) -> None:
        super().__init__("fp32", CPU)
        self._finite = iter(finite)
        self.told: list[bool] = []

    def unscale_and_check(self, buffers):
        return next(self._finite)

    def update(self, finite):
        self.told.append(finite)


def test_a_step_that_overflowed_leaves_weights_momentum_and_schedule_as_they_were():
    finite = [True, False, False, True]
    precision = Overflowing(finite)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    optimizer = SGD(model.parameters(), lr=99.0, momentum=0.9)
    reducer = GradientReducer(model.named_parameters(), NativeAllReduce(1), 1, 0)
    asked = []

    def schedule(step):
        asked.append(step)
        return 0.1 * (step + 1)

    update = HostUpdate(optimizer, reducer.flat_buffers, precision, schedule)
    step = EagerStep(model, update, reducer, precision, 0.0)
    images, labels = torch.randn(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    for number, performs in enumerate(finite):
        before = [p.detach().clone() for p in model.parameters()]
        velocity = [state["momentum_buffer"].clone() for state in optimizer.state.values()]
        step([(images, labels)])
        same = [torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
        assert same == [not performs] * 2
        if not performs:
            after = [state["momentum_buffer"] for state in optimizer.state.values()]
            assert all(map(torch.equal, velocity, after))
        assert step.performed == sum(finite[: number + 1])
    reducer.close()
    assert asked == [0, 1], "the schedule follows performed steps"
    assert optimizer.param_groups[0]["lr"] == 0.2
    assert precision.told == finite


@pytest.mark.gpu
def test_fp16_training_step_on_the_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    precision = Precision("fp16", "cuda", loss_scale=1024.0, growth_interval=2)
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5).cuda()
    images, labels = torch.randn(8, 3, 16, 16, device="cuda"), torch.arange(8, device="cuda")
    seen = []
    model.conv1.register_forward_hook(lambda _m, _x, y: seen.append(y.dtype))
    with precision.autocast():
        loss = nn.functional.cross_entropy(model(images), labels)
    assert loss.dtype == torch.float32
    assert seen == [torch.float16]
    precision.scale(loss).backward()
    grads = [p.grad for p in model.parameters()]
    norm = torch.stack([g.norm() for g in grads]).norm().item()
    assert precision.unscale_and_check(grads)
    assert torch.stack([g.norm() for g in grads]).norm().item() == pytest.approx(norm / 1024)
    grads[0].view(-1)[0] = math.inf
    assert not precision.unscale_and_check(grads)
    precision.update(False)
    assert (precision.loss_scale, precision.skipped_steps) == (512.0, 1)
