"""States as bytes: what their hash covers, and that a file of somebody else's does no harm."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fourmin.base.errors import FourminError
from fourmin.recipe.presets import load_preset
from fourmin.training.kept_state import FORMAT, load_state, take_state
from fourmin.training.models import build_model
from fourmin.training.models.init import initialize
from fourmin.training.optim.build import build_optimizer

OF = {"campaign": "c" * 64, "run": 2, "attempt": 1, "epoch": 3}
PROGRESS = {"performed": 66, "loss_scale": 1.0, "good_steps": 0, "skipped_steps": 0}


def training(seed: int = 1, optimizer: str = "lars") -> Any:
    """A model and an optimizer with a history."""
    config = load_preset("digits").with_overrides({"optimizer": optimizer})
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    initialize(model, seed, "he", False)
    model.to(memory_format=torch.channels_last)
    made = build_optimizer(model, config)
    generator = torch.Generator().manual_seed(seed)
    for tensors in made.state.values():
        for tensor in tensors.values():
            tensor.copy_(torch.rand(tensor.shape, generator=generator))
    told: dict[str, Any] = {}
    return SimpleNamespace(
        model=model, optimizer=made, told=told, step=SimpleNamespace(load_state_dict=told.update)
    )


def taken(of: Any, **changes: Any) -> Any:
    return take_state({**OF, **changes}, of.model, of.optimizer, PROGRESS)


def test_the_hash_is_that_of_the_file_and_of_the_documented_bytes(tmp_path: Path) -> None:
    one = training()
    state = taken(one)
    state.write(tmp_path / "a" / "epoch-3.state")
    data = (tmp_path / "a" / "epoch-3.state").read_bytes()
    assert hashlib.sha256(data).hexdigest() == state.digest()
    first, second, elements = data.split(b"\n", 2)
    assert hashlib.sha256(elements).hexdigest() == state.elements_digest()
    assert first == b"fourmin-state-v1"
    said = json.loads(second)
    assert {name: said[name] for name in OF} == OF
    assert said["progress"] == PROGRESS
    # Every tensor of torch's own list, by type and name, in its logical order.
    tensors = {f"model.{name}": tensor for name, tensor in one.model.state_dict().items()}
    for name, parameter in one.model.named_parameters():
        for kind, tensor in one.optimizer.state[parameter].items():
            tensors[f"{kind}.{name}"] = tensor
    assert {name for name, _, _ in said["tensors"]} == tensors.keys()
    assert said["tensors"] == sorted(said["tensors"], key=lambda row: (row[1], row[0]))
    for name, kind, shape in said["tensors"]:
        tensor = tensors[name]
        assert (kind, shape) == (str(tensor.dtype)[6:], list(tensor.shape))
        own = tensor.detach().contiguous().numpy().tobytes()
        assert elements[: len(own)] == own, name
        elements = elements[len(own) :]
    assert elements == b""


@pytest.mark.parametrize("name", [*OF])
def test_it_says_what_it_is_of(name: str) -> None:
    one = training()
    assert taken(one).digest() == taken(one).digest()
    other = taken(one, **{name: 9})
    assert other.digest() != taken(one).digest()
    assert other.elements_digest() == taken(one).elements_digest()


@pytest.mark.parametrize("optimizer", ["lars", "adamw"])
def test_another_training_becomes_what_a_file_holds(optimizer: str, tmp_path: Path) -> None:
    one, other = training(1, optimizer), training(2, optimizer)
    path = tmp_path / "epoch-3.state"
    taken(one).write(path)
    assert taken(other).digest() != taken(one).digest()
    load_state(path, OF, other.model, other.optimizer, other.step)
    assert taken(other).digest() == taken(one).digest()
    assert other.told == PROGRESS


def _cut(data: bytes) -> bytes:
    return data[:-1]


def _longer(data: bytes) -> bytes:
    return data + b"\0"


def _of_another_epoch(data: bytes) -> bytes:
    return data.replace(b'"epoch":3', b'"epoch":4')


def _larger(data: bytes) -> bytes:
    return data.replace(b",[10]]", b",[11]]", 1)


def _endless_header(data: bytes) -> bytes:
    return FORMAT + b" " * (2 << 20)


def _deep(data: bytes) -> bytes:
    return FORMAT + b"[" * 100_000 + b"\n"


def _pickle(data: bytes) -> bytes:
    return b"\x80\x04cposix\nsystem\n"


def _no_number(data: bytes) -> bytes:
    return data.replace(b'"performed":66', b'"performed":"66"')


@pytest.mark.parametrize(
    "change",
    [_cut, _longer, _of_another_epoch, _larger, _endless_header, _deep, _pickle, _no_number],
)
def test_a_file_that_is_something_else_is_refused(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    one, other = training(1), training(2)
    path = tmp_path / "epoch-3.state"
    taken(one).write(path)
    path.write_bytes(change(path.read_bytes()))
    before = taken(other).digest()
    with pytest.raises(FourminError, match="is not the state of"):
        load_state(path, OF, other.model, other.optimizer, other.step)
    assert (taken(other).digest(), other.told) == (before, {}), "nothing was loaded"
