"""Checkpoints: what they hold, that they are whole or absent, and that nothing in them runs."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from durability import recorded
from torch import nn

from fourmin.base.errors import FourminError
from fourmin.launch.job import complete_checkpoints
from fourmin.log.reader import read_log
from fourmin.log.writer import EventLogWriter
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.recipe.presets import load_preset
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.training.checkpoint import BrokenCheckpointError, CheckpointWriter, load_checkpoint
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.native import NativeAllReduce
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.data.order import OrderDigest, digest_of_order, epoch_permutation
from fourmin.training.models import build_model
from fourmin.training.models.init import initialize
from fourmin.training.optim.build import build_optimizer
from fourmin.training.precision import Precision
from fourmin.training.resume import Checkpoints
from fourmin.training.state import ORDER, flatten, pack, training_state, unflatten, unpack
from fourmin.training.step import EagerStep, HostUpdate

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Trained:
    """A model in one process, and batches that follow from the step's number."""

    def __init__(self, optimizer: str = "lars", model: str = "resnet8", **changes: Any) -> None:
        settings = {"device": "cpu", "precision": "fp32", "optimizer": optimizer, **changes}
        config: Configuration = load_preset("digits").with_overrides(settings)
        self.model: nn.Module = build_model(model, num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
        self.model = self.model.to(memory_format=torch.channels_last)
        initialize(self.model, 5, "he", False)
        self.optimizer = build_optimizer(self.model, config)
        self.reducer = GradientReducer(
            self.model.named_parameters(), NativeAllReduce(1), 1, 1 << 16
        )
        self.order = OrderDigest()
        schedule = LearningRateSchedule(config, 4)
        precision = Precision("fp32", CPU)
        update = HostUpdate(self.optimizer, self.reducer.flat_buffers, precision, schedule)
        self.step = EagerStep(self.model, update, self.reducer, precision, 0.1)

    def train(self, first: int, last: int) -> list[float]:
        losses = []
        for number in range(first, last):
            chance = torch.Generator().manual_seed(number)
            images = torch.randn(8, 3, 16, 16, generator=chance)
            labels = torch.randint(10, (8,), generator=chance)
            losses.append(self.step([(images, labels)])[0].item())
        return losses


@pytest.mark.parametrize(
    ("optimizer", "changes"),
    [
        ("lars", {}),
        ("sgd", {}),
        ("sgd", {"momentum": 0.0}),
        ("sgd", {"nesterov": True}),
        ("lamb", {"weight_decay": 0.01}),
        ("adamw", {"weight_decay": 0.01}),
    ],
    ids=str,
)
def test_training_goes_on_to_the_same_bits(
    tmp_path: Path, optimizer: str, changes: dict[str, Any]
) -> None:
    one, other = Trained(optimizer, **changes), Trained(optimizer, **changes)
    one.train(0, 5)
    writer = CheckpointWriter(tmp_path / "checkpoints", lambda: None)
    writer.begin(2, pack(one.model, one.optimizer, one.step, one.order))
    # What is written is a copy: training goes on.
    expected = one.train(5, 9)
    writer.close()
    other.train(20, 22)  # another history, to be forgotten
    state = load_checkpoint(tmp_path / "checkpoints/epoch-2")
    unpack(state, other.model, other.optimizer, other.step)
    assert other.step.performed == 5
    assert other.train(5, 9) == expected
    for (name, a), b in zip(
        one.model.state_dict().items(), other.model.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
        assert a.stride() == b.stride()


def test_another_optimizer_is_refused() -> None:
    one, other = Trained("lamb"), Trained("sgd")
    state = pack(one.model, one.optimizer, one.step, one.order)
    with pytest.raises(FourminError, match="another model or optimizer"):
        unpack(state, other.model, other.optimizer, other.step)


def test_another_model_is_refused() -> None:
    one, other = Trained(), Trained(model="resnet20")
    state = pack(one.model, one.optimizer, one.step, one.order)
    with pytest.raises(FourminError, match="another model or optimizer"):
        unpack(state, other.model, other.optimizer, other.step)


def small_state() -> dict[str, torch.Tensor]:
    trained = Trained()
    return flatten(training_state(trained.model, trained.optimizer))


def test_a_checkpoint_has_its_name_only_when_all_that_it_needs_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / ".epoch-3").mkdir()
    (folder / ".epoch-3/left").write_text("by a kill")
    may_go, asked = threading.Event(), threading.Event()

    def before_it_counts() -> None:
        asked.set()
        assert may_go.wait(30)

    writer = CheckpointWriter(folder, before_it_counts)
    writer.begin(4, small_state())
    assert asked.wait(30)
    assert writer.busy
    assert [path.name for path in folder.iterdir()] == [".epoch-4"]
    assert complete_checkpoints(folder) == []
    may_go.set()
    writer.close()
    assert not writer.busy
    assert [path.name for path in folder.iterdir()] == ["epoch-4"]
    writer.begin(6, small_state())
    writer.close()
    assert complete_checkpoints(folder) == [6]


def test_a_checkpoint_gets_its_name_when_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = recorded(monkeypatch)
    writer = CheckpointWriter(tmp_path / "checkpoints", lambda: told.append("the log is safe"))
    writer.begin(4, small_state())
    writer.close()
    at = told.index("the log is safe")
    assert any(one.startswith("sync __0_0.distcp") for one in told[:at])
    assert told[at + 1 :] == ["sync .epoch-4/", ".epoch-4 -> epoch-4", "sync checkpoints/"]


def test_the_order_so_far_is_part_of_it() -> None:
    one = Trained()
    for epoch in (1, 2, 3):
        one.order.update(epoch_permutation(7, epoch, 20))
    state = pack(one.model, one.optimizer, one.step, one.order)
    assert [bytes(part) for part in state[ORDER].tolist()] == one.order.parts


def test_a_checkpoint_is_left_out_while_the_one_before_is_written(tmp_path: Path) -> None:
    place = WorkerPlace(0, 1, 0, 1, CPU)
    with EventLogWriter(tmp_path / "events.log") as log:
        checkpoints = Checkpoints(tmp_path / "checkpoints", place, log, writes=True)
        begun = []
        writer = SimpleNamespace(busy=False, begin=lambda epoch, _: begun.append(epoch))
        checkpoints._writer = writer  # type: ignore[assignment]
        for epoch, busy in ((2, False), (4, True), (6, False)):
            writer.busy = busy
            checkpoints.save(epoch, dict)
    assert begun == [2, 6]
    records = read_log(tmp_path / "events.log").records
    assert [record.metadata["epoch_num"] for record in records] == [2, 6]


def test_a_run_survives_a_checkpoint_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def disk_full() -> None:
        raise OSError("no space left on device")

    writer = CheckpointWriter(tmp_path / "checkpoints", disk_full)
    writer.begin(4, small_state())
    writer.close()
    assert complete_checkpoints(tmp_path / "checkpoints") == []
    assert "no checkpoint after epoch 4: no space left" in capsys.readouterr().err


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("broken", ["description", "tensors", "empty", "cut", "missing"])
def test_a_broken_checkpoint_is_removed_and_nothing_of_it_runs(tmp_path: Path, broken: str) -> None:
    writer = CheckpointWriter(tmp_path, lambda: None)
    writer.begin(2, small_state())
    writer.close()
    (data,) = (tmp_path / "epoch-2").glob("*.distcp")
    mark = tmp_path / "it-ran"
    if broken == "description":
        (tmp_path / "epoch-2/.metadata").write_bytes(pickle.dumps(Hostile(mark)))
    elif broken == "tensors":
        torch.save(Hostile(mark), data)
    elif broken == "empty":
        (tmp_path / "epoch-2/.metadata").write_bytes(b"")
    elif broken == "cut":
        data.write_bytes(data.read_bytes()[:1000])
    else:
        data.unlink()
    with pytest.raises(BrokenCheckpointError, match="epoch-2"):
        load_checkpoint(tmp_path / "epoch-2")
    assert not mark.exists()
    assert complete_checkpoints(tmp_path) == []


def test_the_digest_of_the_order_goes_on() -> None:
    seed, n, batch = 7, 100, 16
    whole = OrderDigest()
    for epoch in range(1, 6):
        whole.update(epoch_permutation(seed, epoch, n)[:96])
    again = OrderDigest()
    again.go_on(seed, n, batch, whole.parts[:3])
    for epoch in (4, 5):
        again.update(epoch_permutation(seed, epoch, n)[:96])
    assert again.hexdigest() == whole.hexdigest() == digest_of_order(seed, range(1, 6), n, batch)
    assert (again.count, again.parts) == (whole.count, whole.parts)
    with pytest.raises(FourminError, match="epoch 1 was not trained in the order"):
        OrderDigest().go_on(seed + 1, n, batch, whole.parts[:3])


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_counts_in_the_hosts_memory_are_kept_beside_what_is_on_the_gpu(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    config = load_preset("digits").with_overrides({"optimizer": name})

    def made(steps: int) -> dict[str, torch.Tensor]:
        model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5).cuda()
        optimizer = build_optimizer(model, config)
        for _ in range(steps):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
        return training_state(model, optimizer)

    one, other = made(3), made(1)
    unflatten(flatten(one), other)
    assert len({tensor.device for tensor in one.values()}) == 1 + bool(OPTIMIZERS[name].counters)
    for kind, tensor in one.items():
        assert tensor.device == other[kind].device
        assert torch.equal(tensor, other[kind]), kind
