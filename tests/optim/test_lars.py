"""LARS against its formula in float64, and one test for each fault seen in public versions.

`reference` is the formula with switches for the faults. A fault's test shows twice what it says:
ours agrees with the formula, and the formula with that fault is farther away than the tolerance.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourmin.training.models import build_model
from fourmin.training.optim import Lars, set_learning_rate, split_parameters

TOLERANCE = 5e-6  # relative to the largest weight of a tensor, which shrinks over the steps
SHAPES = [(8, 3, 3, 3), (5, 7), (13,)]
STEPS = 25


def learning_rates(steps=STEPS):
    """Warmup from 0, then a steep decay: every step has another rate."""
    return [2.0 * s / 5 if s < 5 else 2.0 * (1 - (s - 5) / steps) ** 2 for s in range(steps)]


def problem(seed=0, shapes=SHAPES, steps=STEPS, gradient_scale=1.0):
    """Start weights and a gradient for each step, FP32."""
    rng = np.random.default_rng(seed)
    weights = [np.asarray(rng.normal(0, 0.1, shape), np.float32) for shape in shapes]
    grads = [
        [np.asarray(gradient_scale * rng.normal(0, 0.02, s), np.float32) for s in shapes]
        for _ in range(steps)
    ]
    return weights, grads


def reference(
    weights, grads, rates, *, momentum=0.9, wd=5e-3, eta=0.01, epsilon=0.0, clip=False, fault=""
):
    """The formula of fourmin.training.optim.lars in float64, with an optional fault."""
    if fault == "epsilon":
        epsilon = 1e-1
    finals = []
    for index, start in enumerate(weights):
        w = start.astype(np.float64)
        v = np.zeros_like(w)
        previous_lr = 0.0
        for lr, step_grads in zip(rates, grads, strict=True):
            g = step_grads[index].astype(np.float64)
            if fault == "scaled-gradients":
                norm_g = np.linalg.norm(g * 1024)
            elif fault == "fp16-norms":
                norm_g = float(np.sqrt(np.sum(np.square(g.astype(np.float16)), dtype=np.float16)))
            else:
                norm_g = np.linalg.norm(g)
            norm_w = np.linalg.norm(w)
            decay = wd
            if norm_w > 0 and norm_g > 0:
                lam = eta * norm_w / (norm_g + wd * norm_w + epsilon)
                if fault == "wd-zero-off" and wd == 0:
                    lam = 1.0
                local = min(lam, lr) if clip else lr * lam
            else:
                local = lr
                if fault == "zero-ratio":
                    local = 0.0
                if fault == "zero-no-decay":
                    decay = 0.0
            if fault == "decay-not-added":
                decay = 0.0
            change = g + decay * w
            if fault in ("variant-b", "variant-b-corrected"):
                if fault == "variant-b-corrected":  # lr_t / lr_{t-1}, which warmup makes 1 / 0
                    v = v * np.divide(previous_lr, lr)
                v = momentum * v + local / lr * change if lr else momentum * v + change * 0
                w = w - lr * v
            elif fault == "variant-c":
                v = momentum * v + change
                w = w - local * v
            else:
                v = momentum * v + local * change
                w = w - v
            previous_lr = lr
        finals.append(w)
    return finals


def run(
    weights, grads, rates, *, momentum=0.9, wd=5e-3, eta=0.01, epsilon=0.0, clip=False, tensor=False
):
    """The same with `Lars`."""
    parameters = [torch.nn.Parameter(torch.tensor(w)) for w in weights]
    start = torch.tensor(0.0) if tensor else 0.0
    optimizer = Lars(
        parameters, start, momentum=momentum, weight_decay=wd, eta=eta, epsilon=epsilon, clip=clip
    )
    for lr, step_grads in zip(rates, grads, strict=True):
        set_learning_rate(optimizer, lr)
        for parameter, grad in zip(parameters, step_grads, strict=True):
            parameter.grad = torch.tensor(grad)
        optimizer.step()
    return [p.detach().numpy() for p in parameters]


def distance(ours, expected):
    """Largest difference relative to the largest weight, over all tensors; inf for a NaN."""
    worst = 0.0
    for a, b in zip(ours, expected, strict=True):
        difference = np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)
        worst = max(worst, np.inf if np.isnan(difference) else difference)
    return worst


def check(weights, grads, rates, fault, **settings_):
    """Ours is the formula, and is not the formula with `fault`."""
    ours = run(weights, grads, rates, **settings_)
    assert distance(ours, reference(weights, grads, rates, **settings_)) < TOLERANCE
    wrong = reference(weights, grads, rates, fault=fault, **settings_)
    assert distance(ours, wrong) > 10 * TOLERANCE


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("wd", [0.0, 5e-5, 5e-3])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
def test_many_steps_against_the_formula(tensor, clip, wd, epsilon):
    weights, grads = problem()
    options = {"wd": wd, "clip": clip, "epsilon": epsilon}
    ours = run(weights, grads, learning_rates(), tensor=tensor, **options)
    assert distance(ours, reference(weights, grads, learning_rates(), **options)) < TOLERANCE
    assert distance(ours, [w.astype(np.float64) for w in weights]) > 1e-3  # something happened


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shapes=st.lists(st.lists(st.integers(1, 5), min_size=0, max_size=4), min_size=1, max_size=4),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
)
def test_any_shapes_and_scales(seed, shapes, scale):
    weights, grads = problem(seed, [tuple(s) for s in shapes], steps=4, gradient_scale=scale)
    # eta small enough that weights do not pass through 0, where relative errors mean nothing.
    options = {"eta": 1e-3, "wd": 1e-4}
    ours = run(weights, grads, [0.5, 1.0, 0.2, 0.1], **options)
    assert distance(ours, reference(weights, grads, [0.5, 1.0, 0.2, 0.1], **options)) < TOLERANCE


# The faults of public implementations, one by one.


def test_fault_weight_decay_in_the_denominator_but_never_added():
    check(*problem(), learning_rates(), "decay-not-added")


def test_fault_epsilon_zero_replaced_by_a_default():
    check(*problem(gradient_scale=0.01), learning_rates(), "epsilon")
    # Also a default as small as 1e-7 would show: with gradients this small it rules the ratio.
    weights, grads = problem(shapes=[(4,)], steps=1)
    tiny = [[grads[0][0] * np.float32(1e-6)]]
    ours = run(weights, tiny, [1.0], wd=0.0)
    assert distance(ours, reference(weights, tiny, [1.0], wd=0.0)) < TOLERANCE
    assert distance(ours, reference(weights, tiny, [1.0], wd=0.0, epsilon=1e-7)) > 10 * TOLERANCE


@pytest.mark.parametrize("fault", ["zero-ratio", "zero-no-decay"])
def test_fault_zero_gradient_norm(fault):
    weights, grads = problem()
    for step_grads in grads[::2]:
        step_grads[1][:] = 0
    check(weights, grads, learning_rates(), fault)


def test_fault_zero_weight_norm():
    weights, grads = problem()
    weights[0][:] = 0
    # The first rate must not be 0, or the weights stay 0 for a step.
    check(weights, grads, [0.5] * STEPS, "zero-ratio")


@pytest.mark.parametrize("clip", [False, True])
def test_fault_zero_norms_make_nan(clip):
    weights = [np.zeros((3, 3), np.float32)]
    ours = run(weights, [[np.zeros((3, 3), np.float32)]] * 3, [1.0] * 3, wd=0.0, clip=clip)
    assert (ours[0] == 0).all()  # 0 / 0 in the ratio must not reach the weights


def test_fault_weight_decay_zero_switches_lars_off():
    check(*problem(), learning_rates(), "wd-zero-off", wd=0.0)


@pytest.mark.parametrize("scale", [1e-3, 1e5], ids=["underflow", "overflow"])
def test_fault_norms_in_fp16(scale):
    # Squares in FP16 are 0 below 1.7e-4 and infinite above 256.
    weights, grads = problem(gradient_scale=scale)
    with np.errstate(over="ignore"):
        check(weights, grads, learning_rates(), "fp16-norms")


def test_fp16_parameters_and_gradients_are_refused():
    half = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))
    with pytest.raises(TypeError, match="FP32"):
        Lars([half], 0.1)
    # torch itself refuses another type for .grad unless told otherwise; so do we.
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = Lars([parameter], 0.1)
    if hasattr(parameter, "grad_dtype"):
        parameter.grad_dtype = None
        parameter.grad = torch.ones(3, dtype=torch.float16)
        with pytest.raises(TypeError, match="FP32"):
            optimizer.step()


def test_fault_trust_ratio_from_loss_scaled_gradients():
    check(*problem(), learning_rates(), "scaled-gradients")


def test_fault_lars_or_weight_decay_on_batch_norm_and_bias():
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    adapted, plain = split_parameters(model)
    wd, lr = 5e-3, 0.5
    optimizer = Lars(
        [
            {"params": adapted, "weight_decay": wd},
            {"params": plain, "weight_decay": 0.0, "adapt": False},
        ],
        lr,
    )
    torch.manual_seed(0)
    before = {p: p.detach().clone() for p in model.parameters()}
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    for p in plain:
        torch.testing.assert_close(p.detach(), before[p] - lr * p.grad, rtol=1e-6, atol=1e-7)
        decayed = before[p] - lr * (p.grad + wd * before[p])
        if before[p].any():  # gamma starts at 1: decay would show
            assert (p.detach() - decayed).abs().max() > 1e-4
    for p in adapted:  # adapted steps are of the order of eta
        assert 0 < (p.detach() - before[p]).norm() < 2 * lr * 0.001 * before[p].norm()


def test_fault_momentum_correction():
    rates = learning_rates()
    weights, grads = problem()
    for fault in ("variant-b", "variant-c"):
        check(weights, grads, rates, fault)
    # The quotient of two rates is 0 / 0 at the first step of a warmup from 0.
    with np.errstate(all="ignore"):
        corrected = reference(weights, grads, rates, fault="variant-b-corrected")
    assert not any(np.isfinite(w).any() for w in corrected)


def test_variants_a_and_b_agree_at_a_constant_rate():
    # So a test with a constant rate could not tell them apart.
    weights, grads = problem()
    rates = [0.7] * STEPS
    ours = run(weights, grads, rates)
    assert distance(ours, reference(weights, grads, rates, fault="variant-b")) < TOLERANCE


def test_rate_zero_in_warmup_keeps_weights_and_momentum():
    weights, grads = problem()
    ours = run(weights, grads[:2], [0.0, 0.0])
    for a, b in zip(ours, weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_fault_clip_mode_is_not_lars():
    weights, grads = problem()
    rates = learning_rates()
    clipped, plain = run(weights, grads, rates, clip=True), run(weights, grads, rates)
    assert distance(clipped, plain) > 100 * TOLERANCE
    # Where lr is below every ratio, clip mode is plain momentum SGD with the rate inside.
    low = [1e-4] * STEPS
    sgd = reference(weights, grads, low, eta=1e9, clip=True)
    assert distance(run(weights, grads, low, eta=1e9, clip=True), sgd) < TOLERANCE
    p = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    p.grad = torch.tensor([0.0, 10.0])
    Lars([p], 100.0, weight_decay=0.0, eta=0.01, clip=True).step()
    # |w| = 5, |g| = 10: the rate is min(0.01 * 5 / 10, 100) = 0.005.
    torch.testing.assert_close(p.detach(), torch.tensor([3.0, 4.0 - 0.05]))


# What the class promises beyond the formula.


def test_norm_of_a_large_tensor():
    # In FP32, one after the other, 0.2% of such a norm are lost, and the ratio would be off.
    torch.manual_seed(0)
    start = torch.full((20_000_000,), 1.1)
    p = torch.nn.Parameter(start.clone())
    p.grad = torch.full_like(p, 0.3)
    Lars([p], 1.0, weight_decay=0.0, eta=0.5).step()
    # |w| / |g| = 1.1 / 0.3, so the step is 0.5 * 1.1.
    assert p.detach()[12345].item() == pytest.approx(0.55, rel=1e-6)


def test_a_parameter_without_gradient_is_left_alone():
    a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    a.grad = torch.ones(2)
    optimizer = Lars([a, b], 0.1, weight_decay=0.1)
    optimizer.step()
    assert b.tolist() == [1.0, 1.0]
    assert a.tolist() != [1.0, 1.0]
    assert b not in optimizer.state


def test_gradients_are_not_changed():
    for wd in (0.0, 0.1):
        p = torch.nn.Parameter(torch.ones(3))
        p.grad = torch.tensor([1.0, 2.0, 3.0])
        Lars([p], 0.1, weight_decay=wd).step()
        assert p.grad.tolist() == [1.0, 2.0, 3.0]


def test_state_dict_resumes_to_the_bit():
    weights, grads = problem()
    rates = learning_rates()
    whole = run(weights, grads, rates)
    parameters = [torch.nn.Parameter(torch.tensor(w)) for w in weights]
    options = {"momentum": 0.9, "weight_decay": 5e-3, "eta": 0.01}
    optimizer = Lars(parameters, 0.0, **options)
    for step, (lr, step_grads) in enumerate(zip(rates, grads, strict=True)):
        if step == 10:
            saved = optimizer.state_dict()
            optimizer = Lars(parameters, 0.0, **options)
            optimizer.load_state_dict(saved)
        set_learning_rate(optimizer, lr)
        for p, g in zip(parameters, step_grads, strict=True):
            p.grad = torch.tensor(g)
        optimizer.step()
    for p, expected in zip(parameters, whole, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), expected)


def test_closure_runs_with_gradients():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = Lars([p], 0.1)

    def closure():
        loss = (p * p).sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 2.0
    assert (p.detach() < 1).all()


@pytest.mark.gpu
def test_a_cuda_graph_reads_the_rate_anew():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    p = torch.nn.Parameter(torch.ones(4, device="cuda"))
    p.grad = torch.ones_like(p)
    optimizer = Lars([p], torch.tensor(0.0, device="cuda"), weight_decay=1e-4)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        optimizer.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # refuses any synchronisation with the host
        optimizer.step()
    before = p.detach().clone()
    graph.replay()
    assert torch.equal(p.detach(), before)
    set_learning_rate(optimizer, 1.0)
    graph.replay()
    assert not torch.equal(p.detach(), before)
