"""The state of a training after an epoch, as bytes that anyone can compute again.

    fourmin-state-v1
    {"attempt": 1, "campaign": "...", "epoch": 3, "progress": {...}, "run": 1, "tensors": [...]}
    elements

The second line is canonical JSON (RFC 8785); `tensors` gives name, type and shape of each, by type
and name, and `elements` has them in that order, row-major (NCHW) and little-endian. It is all that
training changes: weights, statistics, the optimizer's state, steps performed, and the loss scale.
After an epoch every rank holds the same; the order of the data and all random numbers follow from
seed and epoch. A state is read without executing anything in it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fourmin.base.canonical import JSON, StrictJSONError, canonical_bytes, loads_strict
from fourmin.base.errors import FourminError
from fourmin.base.values import mapping, number
from fourmin.launch.job import Job, state_file
from fourmin.log import keys
from fourmin.log.writer import RunLog
from fourmin.training.comm.agreement import assert_same_on_all_ranks
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.fast.choose import Step
from fourmin.training.state import COUNTERS, State, joined, training_state

FORMAT = b"fourmin-state-v1\n"
MOST_HEADER_BYTES = 1 << 20


@dataclass(frozen=True)
class KeptState:
    """One state: its first two lines, and its elements by type, copied to the CPU."""

    header: bytes
    parts: tuple[Tensor, ...]

    def pieces(self) -> Iterator[memoryview]:
        yield memoryview(self.header)
        for part in self.parts:
            yield part.view(torch.uint8).numpy().data

    def digest(self) -> str:
        """SHA-256 of all of it, so that no two states of any runs have the same."""
        return _sha256(self.pieces())

    def elements_digest(self) -> str:
        """SHA-256 without the first two lines: of two runs with the same bits it is the same."""
        return _sha256(itertools.islice(self.pieces(), 1, None))

    def write(self, path: Path) -> None:
        """Complete or absent. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unnamed = path.with_suffix(".part")
        with unnamed.open("wb") as file:
            for piece in self.pieces():
                file.write(piece)
        os.replace(unnamed, path)


def _sha256(pieces: Iterable[memoryview]) -> str:
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece)
    return sha.hexdigest()


def identity(job: Job, epoch: int) -> dict[str, Any]:
    """What a state is of."""
    return {"campaign": job.campaign, "run": job.run, "attempt": job.attempt, "epoch": epoch}


@torch.no_grad()
def take_state(
    of: Mapping[str, Any], model: nn.Module, optimizer: Optimizer, progress: Mapping[str, Any]
) -> KeptState:
    """A copy of the training as it is; `of` is its `identity`, `progress` what the step tells."""
    state = _in_order(training_state(model, optimizer))
    device = next(model.parameters()).device
    groups = itertools.groupby(state.values(), lambda tensor: tensor.dtype)
    parts = tuple(joined([tensor.to(device) for tensor in group]) for _, group in groups)
    return KeptState(_header(of, state, progress), parts)


@torch.no_grad()
def load_state(
    path: Path, of: Mapping[str, Any], model: nn.Module, optimizer: Optimizer, step: Step
) -> None:
    """Become, in place, the state in a file. Raises FourminError where it is of something else."""
    state = _in_order(training_state(model, optimizer))
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.readline(len(FORMAT)) + file.readline(MOST_HEADER_BYTES)
        progress = _progress(first)
        expected = _header(of, state, progress)
        elements = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
        if first != expected or size != len(first) + elements:
            raise FourminError(f"{path} is not the state of {dict(of)}")
        for tensor in state.values():
            data = bytearray(file.read(tensor.numel() * tensor.element_size()))
            tensor.copy_(torch.frombuffer(data, dtype=tensor.dtype).view(tensor.shape))
    step.load_state_dict(progress)


class States:
    """The states of a run: their digests in the log, and on rank 0 themselves where they are kept.

    A digest is computed beside training and logged when all ranks come past `settle`; of the states
    that are kept one is written at a time.
    """

    def __init__(self, job: Job, place: WorkerPlace, log: RunLog) -> None:
        self._job, self._log = job, log
        self._kept = job.keep_states if place.rank == 0 else None
        self._hashing = ThreadPoolExecutor(1, thread_name_prefix="fourmin-state")
        self._keeping = ThreadPoolExecutor(1, thread_name_prefix="fourmin-keep")
        self._pending: list[tuple[int, Future[tuple[str, str]], Sequence[float | None]]] = []
        self._writing: Future[None] | None = None

    def take(
        self,
        epoch: int,
        losses: Sequence[float | None],
        model: nn.Module,
        optimizer: Optimizer,
        step: Step,
    ) -> None:
        """Training waits while it is copied. `losses` are those of the epoch's first steps."""
        state = take_state(identity(self._job, epoch), model, optimizer, step.state_dict())
        digests = self._hashing.submit(lambda: (state.digest(), state.elements_digest()))
        self._pending.append((epoch, digests, losses))
        self._keep(epoch, state)

    def take_again(self, epoch: int, model: nn.Module, optimizer: Optimizer, step: Step) -> None:
        """The same after a restart, which may have come before the state was written."""
        if self._kept is not None:
            of = identity(self._job, epoch)
            self._keep(epoch, take_state(of, model, optimizer, step.state_dict()))

    def _keep(self, epoch: int, state: KeptState) -> None:
        if self._kept is not None and epoch:  # the first one is anyone's to compute
            self._written()
            path = state_file(self._kept, self._job.campaign, self._job.run, epoch)
            self._writing = self._keeping.submit(state.write, path)

    def settle(self) -> None:
        """Log what was taken. Every rank calls it at the same point."""
        for epoch, digests, losses in self._pending:
            whole, elements = digests.result()
            assert_same_on_all_ranks(f"the states after epoch {epoch}", whole)
            self._log.point(
                keys.STATE,
                {"sha256": whole, "elements_sha256": elements, "step_loss": losses},
                epoch_num=epoch,
            )
        self._pending.clear()

    def close(self) -> None:
        self._written()
        self._hashing.shutdown()
        self._keeping.shutdown()

    def _written(self) -> None:
        """Wait for what is being written. A run whose states cannot be kept is still a run."""
        try:
            if self._writing is not None:
                self._writing.result()
        except OSError as error:
            print(f"a state was not kept: {error}", file=sys.stderr, flush=True)  # noqa: T201
        self._writing = None


def _in_order(state: State) -> State:
    """By type, then by name."""
    return dict(sorted(state.items(), key=lambda one: (_kind(one[1]), one[0])))


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _header(of: Mapping[str, Any], state: State, progress: Mapping[str, Any]) -> bytes:
    tensors: list[JSON] = [[name, _kind(t), [*t.shape]] for name, t in state.items()]
    told = {name: progress[name] for name in COUNTERS}
    return FORMAT + canonical_bytes({**of, "progress": told, "tensors": tensors}) + b"\n"


def _progress(first: bytes) -> dict[str, float]:
    """What the first two lines of a file tell of the steps before; NaN where they do not."""
    try:
        said = mapping(loads_strict(first.removeprefix(FORMAT)))
    except StrictJSONError:
        said = {}
    told = {name: number(mapping(said.get("progress")).get(name)) for name in COUNTERS}
    return {name: -1 if value is None else value for name, value in told.items()}
