"""Messages in rounds: how the algorithms made of point-to-point messages are run.

An algorithm is a generator for one piece of the tensor. It yields the messages of a round, and
is resumed once they have arrived; so it reads like the textbook, and `run` can keep several
pieces on their way at the same time. All ranks must yield the same number of rounds for a piece,
an empty list where they have nothing to say, and cut the tensor alike: then round r of piece c
meets round r of piece c everywhere, and nobody waits for a message that is never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from fourmin.recipe.rounds import message_piece


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """``tensor`` (1-D) goes to global rank ``peer``, or comes from there.

    ``due`` says after how many more rounds it must be there: a receive that is announced ahead
    spares the sender a question and an answer.
    """

    peer: int
    tensor: Tensor
    outgoing: bool
    due: int = 0


Rounds = Iterator[list[Message]]


def send(peer: int, tensor: Tensor) -> list[Message]:
    """The message, or none where there is nothing in it; the other side leaves it out as well."""
    return [Message(peer, tensor, True)] if tensor.numel() else []


def receive(peer: int, tensor: Tensor) -> list[Message]:
    return [Message(peer, tensor, False)] if tensor.numel() else []


def later(rounds: int, messages: Sequence[Message]) -> list[Message]:
    """The messages, due so many rounds later."""
    return [replace(message, due=message.due + rounds) for message in messages]


class Scratch:
    """Buffers for what comes in, kept from call to call: fresh memory costs a page fault each."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    def take(self, like: Tensor, numel: int) -> Tensor:
        """A buffer of at least ``numel`` elements of the type and on the device of ``like``."""
        self._free = [b for b in self._free if b.dtype == like.dtype and b.device == like.device]
        for index, buffer in enumerate(self._free):
            if buffer.numel() >= numel:
                return self._free.pop(index)
        return torch.empty(max(numel, 1), dtype=like.dtype, device=like.device)

    def give(self, buffer: Tensor) -> None:
        """Hand a buffer back; what still reads it must have been waited for."""
        self._free.append(buffer)


def pieces(tensor: Tensor, pipeline_bytes: int) -> Sequence[Tensor]:
    """Cut ``tensor`` into pieces; see ``message_piece``."""
    size = message_piece(tensor.numel(), tensor.element_size(), tensor.is_cuda, pipeline_bytes)
    return torch.split(tensor, size)


def run(
    algorithm: Callable[[Tensor], Rounds],
    parts: Sequence[Tensor],
) -> None:
    """Run ``algorithm`` on each part; a part starts one round after the part before it.

    Raises RuntimeError, naming the peer, when a message fails or does not come within the timeout.
    """
    if parts[0].is_cuda:
        _run_grouped(algorithm, parts)
    else:
        _run_posted(algorithm, parts)


def _run_posted(algorithm: Callable[[Tensor], Rounds], parts: Sequence[Tensor]) -> None:
    """For gloo, whose messages move by themselves once they are posted.

    The youngest part goes first: its next message is then posted while an older one is still on
    the slow link, which never runs dry.
    """
    under_way: list[Iterator[bool]] = []
    coming = iter(enumerate(parts))
    while True:
        for tag, part in coming:
            under_way.append(_posted(algorithm(part), tag))
            break
        if not under_way:
            return
        under_way = [part for part in reversed(under_way) if next(part, False)][::-1]


def _posted(rounds: Rounds, tag: int) -> Iterator[bool]:
    """Posts the messages of a round, and when it is resumed waits for those due in it."""
    works: dict[int, list[tuple[dist.Work, Message]]] = {}
    for number, messages in enumerate(rounds):
        # Receives first, in the order in which their messages will come.
        for message in sorted(messages, key=lambda each: (each.outgoing, each.due)):
            way = dist.isend if message.outgoing else dist.irecv
            try:
                posted = way(message.tensor, message.peer, tag=tag)
            except RuntimeError as error:
                raise RuntimeError(f"message with rank {message.peer}: {error}") from error
            if posted is not None:
                works.setdefault(number + message.due, []).append((posted, message))
        yield True
        for work, message in works.pop(number, ()):
            try:
                work.wait()
            except RuntimeError as error:
                side = "to" if message.outgoing else "from"
                raise RuntimeError(f"message {side} rank {message.peer}: {error}") from error


def _run_grouped(algorithm: Callable[[Tensor], Rounds], parts: Sequence[Tensor]) -> None:
    """For NCCL, which runs the messages of one call at the same time and calls in order.

    A receive that is announced ahead is kept until it is due, when its sender sends.
    """
    under_way: list[tuple[Rounds, list[Message]]] = []
    coming = iter(parts)
    while True:
        for part in coming:
            under_way.append((algorithm(part), []))
            break
        if not under_way:
            return
        operations = []
        going_on = []
        for rounds, ahead in under_way:
            messages = next(rounds, None)
            if messages is None:
                continue
            messages = [*ahead, *messages]
            operations += [_operation(message) for message in messages if not message.due]
            rest = [replace(each, due=each.due - 1) for each in messages if each.due]
            going_on.append((rounds, rest))
        under_way = going_on
        if operations:
            for work in dist.batch_isend_irecv(operations):
                work.wait()


def _operation(message: Message) -> dist.P2POp:
    way = dist.isend if message.outgoing else dist.irecv
    return dist.P2POp(way, message.tensor, message.peer)
