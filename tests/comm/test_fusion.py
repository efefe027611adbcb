"""Buckets, views, order and errors of the reducer, in one process with simulated peers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from comm_cases import IdentityAllReduce, backward, gradients, layout_digest, make_model
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fourmin.base.errors import FourminError
from fourmin.training.comm.base import CommunicationError
from fourmin.training.comm.fusion import GradientReducer, last_factor, mean

EVERYTHING = slice(0, 12)
MakeReducer = Callable[..., GradientReducer]


class Recorder:
    """Two ranks with the same gradients; notes the sizes that come, can be told to fail."""

    name = "recorder"

    def __init__(self, fail_at: int | None = None) -> None:
        self.calls = 0
        self.sizes: list[int] = []
        self.threads: set[str] = set()
        self.called = threading.Event()
        self._fail_at = fail_at

    def all_reduce(self, tensor: Tensor) -> None:
        self.calls += 1
        if self._fail_at == self.calls - 1:
            raise RuntimeError("Connection closed by peer")
        self.sizes.append(tensor.numel())
        self.threads.add(threading.current_thread().name)
        tensor.mul_(2)
        self.called.set()


@pytest.fixture
def reducer_for() -> Iterator[MakeReducer]:
    made: list[GradientReducer] = []

    def make(model: nn.Module, threshold_bytes: int = 0, **options: object) -> GradientReducer:
        arguments = {"all_reduce": Recorder(), "world_size": 2, **options}
        made.append(
            GradientReducer(model.named_parameters(), threshold_bytes=threshold_bytes, **arguments)
        )
        return made[-1]

    yield make
    for each in made:
        each.close()


def names(reducer: GradientReducer) -> list[list[str]]:
    return [[slot.name for slot in bucket.slots] for bucket in reducer.buckets]


def linear_stack() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4), nn.Linear(4, 2))


def plain_gradients() -> dict[str, list[float]]:
    model = make_model()
    backward(model, EVERYTHING)
    return gradients(model)


# Layout


def test_threshold_zero_gives_each_tensor_its_own_bucket(reducer_for: MakeReducer) -> None:
    buckets = names(reducer_for(linear_stack(), threshold_bytes=0))
    assert buckets == [["2.bias"], ["2.weight"], ["1.bias"], ["1.weight"], ["0.weight"]]


def test_a_bucket_ends_once_it_reaches_the_threshold(reducer_for: MakeReducer) -> None:
    # FP32 bytes, in reverse order: 8, 32, 16, 64, 64.
    buckets = names(reducer_for(linear_stack(), threshold_bytes=56))
    assert buckets == [["2.bias", "2.weight", "1.bias"], ["1.weight"], ["0.weight"]]
    assert len(names(reducer_for(linear_stack(), threshold_bytes=57))) == 2
    assert len(names(reducer_for(linear_stack(), threshold_bytes=1 << 20))) == 1


@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    threshold=st.integers(0, 400),
)
def test_views_never_overlap_and_all_but_the_last_bucket_reach_the_threshold(
    sizes: list[int], threshold: int
) -> None:
    parameters = [(f"p{i}", nn.Parameter(torch.zeros(n))) for i, n in enumerate(sizes)]
    reducer = GradientReducer(parameters, Recorder(), 2, threshold)
    reducer.close()
    assert [n for part in names(reducer) for n in part] == [n for n, _ in reversed(parameters)]
    for bucket in reducer.buckets:
        end = 0
        for slot in bucket.slots:
            assert slot.offset >= end
            assert slot.offset % 4 == 0
            end = slot.offset + slot.parameter.numel()
        assert end == bucket.flat.numel()
        if bucket is not reducer.buckets[-1]:
            tensors = [4 * slot.parameter.numel() for slot in bucket.slots]
            assert sum(tensors[:-1]) < max(threshold, 1)
            assert sum(tensors) >= threshold


def test_frozen_parameters_are_left_out(reducer_for: MakeReducer) -> None:
    model = linear_stack()
    model[1].weight.requires_grad_(False)
    assert ["1.weight"] not in names(reducer_for(model))


def test_layout_digest_depends_on_threshold_strides_and_dtype(reducer_for: MakeReducer) -> None:
    digests = [
        layout_digest(reducer_for(make_model(), 0)),
        layout_digest(reducer_for(make_model(), 1 << 20)),
        layout_digest(reducer_for(make_model().to(memory_format=torch.contiguous_format), 0)),
        layout_digest(reducer_for(make_model(), 0, bucket_dtype=torch.float16)),
    ]
    assert len(set(digests)) == 4
    assert digests[0] == layout_digest(reducer_for(make_model(), 0))


def named(*tensors: Tensor) -> list[tuple[str, nn.Parameter]]:
    return [(f"p{i}", nn.Parameter(t)) for i, t in enumerate(tensors)]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (named(torch.zeros(3, dtype=torch.float16)), "FP32 only"),
        (named(torch.zeros(3), torch.zeros(3, device="meta")), "p1 is on meta"),
        (named(torch.zeros(4, 4)[:, ::2]), "does not fill"),
        (named(torch.zeros(1, 4).expand(3, 4)), "does not fill"),
        (named(torch.zeros(3)) * 2, "same parameter"),
        ([], "no parameter"),
    ],
    ids=["half", "two devices", "gaps", "overlap", "twice", "none"],
)
def test_parameters_that_cannot_be_packed_are_refused(
    parameters: list[tuple[str, nn.Parameter]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        GradientReducer(parameters, Recorder(), 2, 0)


def test_senseless_options_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        GradientReducer(named(torch.zeros(1)), Recorder(), 2, -1)
    with pytest.raises(ValueError, match="float64"):
        GradientReducer(named(torch.zeros(1)), Recorder(), 2, 0, bucket_dtype=torch.float64)


# Gradients as views


@pytest.mark.parametrize("threshold", [0, 1000, 1 << 20])
def test_gradients_stay_views_with_the_parameters_strides(
    reducer_for: MakeReducer, threshold: int
) -> None:
    model = make_model()
    assert not model[0].weight.is_contiguous()
    reducer = reducer_for(model, threshold)
    places = {name: p.grad.data_ptr() for name, p in model.named_parameters()}
    for _ in range(2):
        reducer.clear()
        backward(model, EVERYTHING)
        reducer.finish()
        for name, parameter in model.named_parameters():
            assert parameter.grad.data_ptr() == places[name]
            assert parameter.grad.stride() == parameter.stride()
    # Two equal ranks: their mean is the gradient itself, and it lies in the flat buffers.
    assert gradients(model) == plain_gradients()
    total = sum(float(flat.double().sum()) for flat in reducer.flat_buffers)
    assert total == pytest.approx(sum(sum(g) for g in plain_gradients().values()), abs=1e-5)


def test_the_step_before_is_forgotten(reducer_for: MakeReducer) -> None:
    model = make_model()
    reducer = reducer_for(model)
    for _ in range(2):
        reducer.clear()
        backward(model, EVERYTHING)
        reducer.finish()
    assert gradients(model) == plain_gradients()


@pytest.mark.filterwarnings("ignore:grad and param do not obey:UserWarning")
@pytest.mark.parametrize("how", ["none", "own", "other order"])
def test_gradients_come_into_their_buckets_whoever_made_them(
    reducer_for: MakeReducer, how: str
) -> None:
    """Whatever is there before the backward pass: nothing, or a tensor that it adds to."""
    model = make_model()
    reducer = reducer_for(model)
    model.zero_grad(set_to_none=True)
    weight = model[0].weight
    if how == "own":
        weight.grad = torch.zeros_like(weight)
    elif how == "other order":
        weight.grad = torch.zeros(weight.shape)
        assert weight.grad.stride() != weight.stride()
    backward(model, EVERYTHING)
    reducer.finish()
    assert gradients(model) == plain_gradients()
    assert weight.grad.data_ptr() in {s.view.data_ptr() for b in reducer.buckets for s in b.slots}
    assert weight.grad.stride() == weight.stride()


# Which gradients count


def test_parameters_without_gradient_are_named(reducer_for: MakeReducer) -> None:
    model = make_model()
    model.unused = nn.Linear(2, 2)
    model.forward = lambda x: nn.Sequential(*list(model.children())[:-1])(x)
    reducer = reducer_for(model)
    backward(model, EVERYTHING)
    with pytest.raises(FourminError) as caught:
        reducer.finish()
    assert "unused.bias, unused.weight" in caught.value.what
    assert "0.weight" not in caught.value.what


def test_a_second_backward_without_finish_is_an_error(reducer_for: MakeReducer) -> None:
    model = make_model()
    reducer_for(model)
    backward(model, EVERYTHING)
    with pytest.raises(RuntimeError, match="came twice"):
        backward(model, EVERYTHING)


def test_only_the_last_micro_batch_reduces(reducer_for: MakeReducer) -> None:
    model = make_model()
    recorder = Recorder()
    reducer = reducer_for(model, all_reduce=recorder)
    for i in range(3):
        with reducer.accumulating(i < 2):
            backward(model, slice(4 * i, 4 * i + 4), divide_by=3)
        if i < 2:
            assert recorder.sizes == []
    reducer.finish()
    assert len(recorder.sizes) == len(reducer.buckets)
    for name, values in plain_gradients().items():
        assert gradients(model)[name] == pytest.approx(values, rel=1e-5, abs=1e-7)


def test_finish_without_a_counted_backward_names_everything(reducer_for: MakeReducer) -> None:
    model = make_model()
    reducer = reducer_for(model)
    with reducer.accumulating():
        backward(model, EVERYTHING)
    with pytest.raises(FourminError, match=r"0\.weight"):
        reducer.finish()


def test_zero_between_backward_and_finish_is_an_error(reducer_for: MakeReducer) -> None:
    model = make_model()
    reducer = reducer_for(model)
    backward(model, EVERYTHING)
    with pytest.raises(RuntimeError, match=r"finish\(\) first"):
        reducer.clear()
    reducer.finish()


# Order and overlap


class Crossed(nn.Module):
    """Registers its layers in the opposite order to that of their use."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 1, bias=False)
        self.middle = nn.Linear(3, 3, bias=False)
        self.first = nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.first(x)))


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("make", [linear_stack, Crossed])
def test_buckets_are_launched_in_bucket_order(
    reducer_for: MakeReducer, make: Callable[[], nn.Module], overlap: bool
) -> None:
    model = make()
    recorder = Recorder()
    reducer = reducer_for(model, all_reduce=recorder, overlap=overlap)
    expected = [flat.numel() for flat in reducer.flat_buffers]
    model(torch.ones(2, 4)).sum().backward()
    reducer.finish()
    assert recorder.sizes == expected
    assert recorder.threads == {"fourmin-comm"}


@pytest.mark.parametrize("overlap", [True, False])
def test_the_first_bucket_is_reduced_before_backward_ends(
    reducer_for: MakeReducer, overlap: bool
) -> None:
    model = make_model()
    recorder = Recorder()
    reducer = reducer_for(model, all_reduce=recorder, overlap=overlap)
    seen: list[bool] = []
    # The first layer's gradient comes last; backward stands still there until a bucket went out.
    model[0].weight.register_hook(
        lambda _: seen.append(recorder.called.wait(5.0 if overlap else 0.2))
    )
    backward(model, EVERYTHING)
    reducer.finish()
    assert seen == [overlap]


def test_a_bucket_is_sent_when_all_of_it_is_there(
    reducer_for: MakeReducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent is what backward made: no gradient is still missing, none is of before."""
    sent: list[Tensor] = []

    class Copying(Recorder):
        def all_reduce(self, tensor: Tensor) -> None:
            sent.append(tensor.clone())
            super().all_reduce(tensor)

    model = make_model()
    reducer = reducer_for(model, threshold_bytes=64, all_reduce=Copying())
    assert any(len(bucket.slots) > 1 for bucket in reducer.buckets)
    # What is missing when a bucket is handed over may have come when it is sent.
    missing: list[int] = []
    hand_over = reducer._lane.submit

    def submit(index: int) -> None:
        missing.append(reducer.buckets[index].missing)
        hand_over(index)

    monkeypatch.setattr(reducer._lane, "submit", submit)
    for step in range(2):
        reducer.clear()
        backward(model, EVERYTHING)
        reducer.finish()
        made = sent[step * len(reducer.buckets) :]
        assert len(made) == len(reducer.buckets)
        for bucket, copy in zip(reducer.buckets, made, strict=True):
            # Two ranks with the same gradients: their mean is what each of them had.
            assert torch.equal(bucket.flat, copy)
    assert missing == [0] * len(sent)


def test_counters_and_exposed_time(reducer_for: MakeReducer) -> None:
    model = make_model()
    reducer = reducer_for(model, threshold_bytes=1 << 20)
    for _ in range(3):
        reducer.clear()
        backward(model, EVERYTHING)
        assert 0.0 <= reducer.finish().seconds() < 5.0
    counters = reducer.counters
    size = reducer.flat_buffers[0].numel() * 4
    assert (counters.steps, counters.collectives, counters.bytes) == (3, 3, 3 * size)
    assert counters.bucket_bytes == (size,)
    assert counters.bucket_algorithms == ("recorder",)


def test_exposed_time_is_what_backward_did_not_hide(reducer_for: MakeReducer) -> None:
    class Slow(Recorder):
        def all_reduce(self, tensor: Tensor) -> None:
            threading.Event().wait(0.2)

    model = make_model()
    reducer = reducer_for(model, 1 << 20, all_reduce=Slow(), overlap=False)
    backward(model, EVERYTHING)
    assert reducer.finish().seconds() >= 0.19


def test_one_rank_sends_nothing(reducer_for: MakeReducer) -> None:
    model = make_model()
    recorder = Recorder()
    reducer = reducer_for(model, all_reduce=recorder, world_size=1, bucket_dtype=torch.float16)
    backward(model, EVERYTHING)
    reducer.finish()
    assert recorder.sizes == []
    assert reducer.counters.bytes == 0
    assert gradients(model) == plain_gradients()


# Failures and the end


def test_a_failure_of_the_thread_comes_out_of_finish(reducer_for: MakeReducer) -> None:
    model = make_model()
    recorder = Recorder(fail_at=1)
    reducer = reducer_for(model, all_reduce=recorder)
    backward(model, EVERYTHING)
    with pytest.raises(CommunicationError, match="Connection closed by peer") as caught:
        reducer.finish()
    assert "recorder all-reduce of bucket 1 failed (5.weight" in caught.value.what
    assert caught.value.exit_code == 3
    assert recorder.calls == 2, "nothing may be sent after a failure"


def test_close_stops_the_thread_and_unhooks() -> None:
    before = threading.active_count()
    model = make_model()
    reducer = GradientReducer(model.named_parameters(), Recorder(), 2, 0)
    assert threading.active_count() == before + 1
    reducer.close()
    reducer.close()
    assert threading.active_count() == before
    model.zero_grad(set_to_none=True)
    backward(model, EVERYTHING)
    with pytest.raises(RuntimeError, match=r"after close\(\)"):
        reducer.finish()


# Half precision


class SimulatedRanks:
    """Sums ``ranks`` copies of the tensor in its own type, in groups as hierarchical does."""

    name = "simulated"

    def __init__(self, ranks: int, group_size: int) -> None:
        self._shape = (ranks // group_size, group_size)

    def all_reduce(self, tensor: Tensor) -> None:
        groups, members = self._shape
        in_group = tensor.clone()
        for _ in range(members - 1):
            in_group.add_(tensor)
        tensor.copy_(in_group)
        for _ in range(groups - 1):
            tensor.add_(in_group)


RANKS = 2048
LARGE = 0.05 * 1024  # a gradient of 0.05 under a loss scale of 1024
SMALL = 1e-5  # divided by 2048 it is below half of FP16's smallest number


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [LARGE, -LARGE, SMALL])
def test_mean_over_2048_ranks_neither_overflows_nor_underflows(
    dtype: torch.dtype, value: float
) -> None:
    flat = torch.full((5,), value)
    mean(flat, SimulatedRanks(RANKS, 16), RANKS, torch.empty(5, dtype=dtype))
    # SMALL / sqrt(2048) has two significant bits left as a subnormal of FP16.
    tolerance = 0.15 if value == SMALL and dtype == torch.float16 else 0.05
    assert flat.tolist() == pytest.approx([value] * 5, rel=tolerance)


def test_the_simulation_sees_what_the_split_division_prevents() -> None:
    overflow = torch.full((1,), LARGE, dtype=torch.float16)
    SimulatedRanks(RANKS, 16).all_reduce(overflow)
    assert torch.isinf(overflow).all()
    assert float(torch.tensor(SMALL / RANKS, dtype=torch.float16)) == 0.0


def test_the_division_after_the_sum_is_in_fp32() -> None:
    class OneRankHasTheSmallestNumber:
        name = "smallest"

        def all_reduce(self, tensor: Tensor) -> None:
            tensor.fill_(2.0**-24)

    flat = torch.zeros(1)
    mean(flat, OneRankHasTheSmallestNumber(), 4, torch.empty(1, dtype=torch.float16))
    assert float(flat) == 2.0**-25


def test_the_division_before_the_sum_is_in_fp32() -> None:
    # 1e5 is beyond FP16, half of it is not; one rank alone holds it, so the sum is the term.
    flat = torch.full((1,), 1e5)
    mean(flat, IdentityAllReduce(), 4, torch.empty(1, dtype=torch.float16))
    assert float(flat) == pytest.approx(25_000, rel=1e-3)


def test_bf16_sum_stops_growing_without_groups() -> None:
    flat = torch.ones(1)
    mean(flat, SimulatedRanks(RANKS, RANKS), RANKS, torch.empty(1, dtype=torch.bfloat16))
    assert float(flat) < 0.2
    flat = torch.ones(1)
    mean(flat, SimulatedRanks(RANKS, 32), RANKS, torch.empty(1, dtype=torch.bfloat16))
    assert float(flat) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
@given(ranks=st.integers(1, 64), values=st.lists(st.floats(-100, 100), min_size=1, max_size=9))
def test_mean_of_equal_ranks_is_the_value(
    dtype: torch.dtype | None, ranks: int, values: list[float]
) -> None:
    flat = torch.tensor(values)
    wire = None if dtype is None else torch.empty(len(values), dtype=dtype)
    mean(flat, SimulatedRanks(ranks, 1), ranks, wire)
    unit = torch.finfo(dtype or torch.float32).eps / 2
    tiny = 0.0 if dtype is None else math.sqrt(ranks) * torch.finfo(dtype).smallest_normal * unit
    expected = torch.tensor(values)
    bound = (ranks + 1) * unit * expected.abs() * 1.01 + 2 * ranks * tiny
    assert ((flat - expected).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_without_the_division_the_factor_is_all_that_is_missing(dtype: torch.dtype | None) -> None:
    values = torch.tensor([3.0, -0.125, 1e-3])
    whole, rest = values.clone(), values.clone()
    mean(whole, SimulatedRanks(6, 1), 6, None if dtype is None else torch.empty(3, dtype=dtype))
    wire = None if dtype is None else torch.empty(3, dtype=dtype)
    mean(rest, SimulatedRanks(6, 1), 6, wire, divide=False)
    factor = last_factor(6, halves=dtype is not None)
    assert factor == pytest.approx(1 / 6 if dtype is None else 6**-0.5)
    assert (rest * factor).tolist() == whole.tolist()


@pytest.mark.parametrize(("dtype", "factor"), [(None, 0.25), (torch.float16, 0.5)])
def test_a_reducer_leaves_the_division_to_whoever_asks_for_it(
    dtype: torch.dtype | None, factor: float
) -> None:
    parameter = nn.Parameter(torch.zeros(2))
    reducer = GradientReducer([("p", parameter)], SimulatedRanks(4, 1), 4, 0, bucket_dtype=dtype)
    for asked, expected in ((False, 8.0), (True, 8.0 / factor)):
        if asked:
            assert reducer.leave_division() == factor
        reducer.clear()
        (parameter.sum() * 8.0).backward()
        reducer.finish()
        assert parameter.grad is not None
        assert parameter.grad.tolist() == [expected] * 2
    reducer.close()


def test_mean_is_not_the_sum_nor_the_own_value() -> None:
    flat = torch.full((3,), 4.0)
    mean(flat, IdentityAllReduce(), 2)
    assert flat.tolist() == [2.0] * 3, "identity instead of a sum must show in the mean"
