from __future__ import annotations

import socket

import pytest
import torch
import torch.distributed as dist

from fourmin.base.errors import FourminError
from fourmin.training.comm.base import CommunicationError
from fourmin.training.comm.process_group import destroy, init_process_group

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What torchrun sets for the only worker of a run."""
    values = ("0", "1", "0", "1", "127.0.0.1", free_port())
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_joins_over_gloo_and_leaves(environment: pytest.MonkeyPatch) -> None:
    place = init_process_group("cpu", 20.0)
    try:
        assert (place.rank, place.world_size, place.local_rank, place.ranks_per_node) == (
            0,
            1,
            0,
            1,
        )
        assert place.device == torch.device("cpu")
        assert dist.get_backend() == "gloo"
    finally:
        destroy()
    assert not dist.is_initialized()
    destroy()


@pytest.mark.parametrize("name", VARIABLES)
def test_a_missing_variable_is_named(environment: pytest.MonkeyPatch, name: str) -> None:
    environment.delenv(name)
    with pytest.raises(FourminError, match=rf"environment: {name}\n"):
        init_process_group("cpu", 20.0)


def test_a_senseless_variable_is_shown(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("WORLD_SIZE", "two")
    with pytest.raises(FourminError, match="WORLD_SIZE='two'"):
        init_process_group("cpu", 20.0)


def test_peers_that_never_come_end_in_an_error(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("WORLD_SIZE", "2")
    with pytest.raises(CommunicationError, match="worker 0 of 2 could not join") as caught:
        init_process_group("cpu", 1.0)
    assert "127.0.0.1" in caught.value.next_step
    assert not dist.is_initialized()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_an_error(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(FourminError, match="has no GPU"):
        init_process_group("cuda", 20.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_timeout_must_be_positive(environment: pytest.MonkeyPatch, seconds: float) -> None:
    with pytest.raises(FourminError, match="collective_timeout_seconds"):
        init_process_group("cpu", seconds)


def test_another_device_is_refused(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="cpu or cuda"):
        init_process_group("tpu", 20.0)
