"""The order of the data: ours, not a loader's, so that it can be digested and replayed.

Everything here is a function of seed, epoch and sample index. Random numbers are the raw
stream of Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"),
which numpy guarantees not to change: key = (seed, stream), counter = (block, 0, 0, epoch),
each block giving four 64-bit words, the first block being 1. The number of workers decides
only who takes which part of a global batch.

An epoch is floor(n / global batch) global batches; what is left at its end is dropped (other
samples in each epoch, since each has its own permutation).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fourmin.base.errors import FourminError

Indices = npt.NDArray[np.int64]
BatchOf = int | Callable[[int], int]
"""The global batch, or that of each epoch."""

ORDER_STREAM = 1
AUGMENTATION_STREAM = 2

_WORDS = 4


def epoch_permutation(seed: int, epoch: int, n: int) -> Indices:
    """The samples of an epoch, all `n` of them once, in the order of training; int64, (n,).

    It is the stable argsort of the first n words of the stream.
    """
    return np.argsort(_stream(seed, ORDER_STREAM, epoch).random_raw(n), kind="stable")


def augmentation_randoms_of(
    seed: int, epoch: int, indices: Indices, k: int
) -> npt.NDArray[np.float64]:
    """`k` uniform numbers in [0, 1) for each of some samples; (b, k).

    Sample i uses the blocks from i * ceil(k / 4) on. A number is the upper 53 bits of a word.
    """
    stream = _stream(seed, AUGMENTATION_STREAM, epoch)
    state = stream.state
    words = np.empty((len(indices), k), dtype=np.uint64)
    for row, index in enumerate(indices.tolist()):
        # Its first word: a stream made anew would take five times as long.
        state["state"]["counter"][0] = index * -(-k // _WORDS)
        stream.state = state
        words[row] = stream.random_raw(k)
    unit: npt.NDArray[np.float64] = (words >> np.uint64(11)) * (1.0 / (1 << 53))
    return unit


def steps_per_epoch(n: int, global_batch_size: int) -> int:
    """floor(n / global batch). Raises FourminError when there is not even one."""
    if n < global_batch_size:
        raise FourminError(
            f"the global batch of {global_batch_size} is larger than the training set",
            f"there are {n} training images, and an incomplete global batch is dropped",
            "make global_batch_size smaller",
        )
    return n // global_batch_size


def rank_batch_size(global_batch_size: int, world_size: int, accumulation_steps: int) -> int:
    """Samples of one micro-batch of one rank. Raises FourminError when it is not whole."""
    size, rest = divmod(global_batch_size, world_size * accumulation_steps)
    if rest or size == 0:
        raise FourminError(
            f"the global batch of {global_batch_size} cannot be shared equally",
            f"it is not a multiple of {world_size} workers x {accumulation_steps} accumulation "
            "steps",
            "change global_batch_size, the number of workers or gradient_accumulation_steps",
        )
    return size


def rank_share(
    permutation: Indices,
    step: int,
    global_batch_size: int,
    rank: int,
    world_size: int,
    accumulation_steps: int = 1,
) -> Indices:
    """The samples of one rank in one step; int64, (accumulation steps, micro-batch).

    Global batch b is permutation[b * G : (b + 1) * G]; the rank's share is its contiguous part
    number `rank`, and a micro-batch is a contiguous part of the share.
    """
    micro = rank_batch_size(global_batch_size, world_size, accumulation_steps)
    share = micro * accumulation_steps
    start = step * global_batch_size + rank * share
    if step < 0 or (step + 1) * global_batch_size > len(permutation):
        raise ValueError(f"step {step} is not one of the epoch")
    return permutation[start : start + share].reshape(accumulation_steps, micro)


def evaluation_share(n: int, rank: int, world_size: int) -> Indices:
    """The validation samples of one rank: every sample on exactly one, sizes within one."""
    return np.arange(n * rank // world_size, n * (rank + 1) // world_size, dtype=np.int64)


def evaluation_batches(n: int, rank: int, world_size: int, size: int) -> list[Indices]:
    """The same in batches of `size`, the last of which may be smaller."""
    share = evaluation_share(n, rank, world_size)
    return [share[start : start + size] for start in range(0, len(share), size)]


class OrderDigest:
    """Running SHA-256 over the samples consumed, as little-endian int64, in order of steps.

    Over an epoch it is fed the concatenated global batches, a global batch being the ranks'
    shares in order of ranks; so the digest does not depend on the number of workers.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.count = 0
        """Samples so far."""
        self.parts: list[bytes] = []
        """SHA-256 of what each update added: what a checkpoint keeps, since no hash can be."""

    def update(self, indices: npt.ArrayLike) -> None:
        data = np.ascontiguousarray(indices, dtype="<i8").tobytes()
        self._hash.update(data)
        self.parts.append(hashlib.sha256(data).digest())
        self.count += len(data) // 8

    def go_on(
        self,
        seed: int,
        n: int,
        batch_of: BatchOf,
        parts: Sequence[bytes],
        *,
        repeated: bool = False,
    ) -> None:
        """Add the whole epochs from 1 on that were consumed before; `parts` are theirs.

        `repeated`: each has the order of the first one.

        Raises FourminError when what was consumed is not the order that `seed` gives.
        """
        for epoch, part in enumerate(parts, start=1):
            batch, ordered = _batch(batch_of, epoch), 1 if repeated else epoch
            self.update(epoch_permutation(seed, ordered, n)[: steps_per_epoch(n, batch) * batch])
            if self.parts[-1] != part:
                raise FourminError(
                    f"epoch {epoch} was not trained in the order of this run's seed",
                    "the checkpoint is of another run",
                    "remove it: the run then goes on from the start of training",
                )

    def update_from_ranks(self, consumed: Sequence[npt.ArrayLike], global_batch_size: int) -> None:
        """Add what all ranks consumed over the same whole steps, `consumed` in rank order.

        Raises ValueError when the ranks did not consume equally many, or not whole steps.
        """
        self.update(global_order(consumed, global_batch_size))

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def global_order(consumed: Sequence[npt.ArrayLike], global_batch_size: int) -> Indices:
    """Concatenated global batches from what each rank consumed, in rank order; int64."""
    shares = [np.asarray(one, dtype=np.int64).ravel() for one in consumed]
    share, rest = divmod(global_batch_size, len(shares))
    if rest or any(len(one) != len(shares[0]) or len(one) % share for one in shares):
        raise ValueError("the ranks did not consume the same number of whole steps")
    return np.stack([one.reshape(-1, share) for one in shares], axis=1).ravel()


def digest_of_order(
    seed: int,
    epochs: Iterable[int],
    n: int,
    batch_of: BatchOf,
    max_steps: int | None = None,
) -> str:
    """The digest of a run's data order, computed without an image.

    `epochs` are the epoch numbers in order; `max_steps` stops after so many steps in all.
    """
    digest = OrderDigest()
    left = max_steps
    for epoch in epochs:
        batch = _batch(batch_of, epoch)
        steps = steps_per_epoch(n, batch)
        if left is not None:
            steps = min(steps, left)
            left -= steps
        digest.update(epoch_permutation(seed, epoch, n)[: steps * batch])
    return digest.hexdigest()


def _batch(batch_of: BatchOf, epoch: int) -> int:
    return batch_of if isinstance(batch_of, int) else batch_of(epoch)


def _stream(seed: int, stream: int, epoch: int) -> np.random.Philox:
    return np.random.Philox(
        key=np.array([seed, stream], dtype=np.uint64),
        counter=np.array([0, 0, 0, epoch], dtype=np.uint64),
    )
