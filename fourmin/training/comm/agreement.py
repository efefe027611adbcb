"""Do all ranks hold the same thing? Short digests, gathered and compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from fourmin.training.comm.base import CommunicationError

_WIDTH = 64  # bytes: a SHA-256 in hexadecimal
_GROUPS_SHOWN = 4
_SUMMED = 4096


class RankDisagreementError(CommunicationError):
    """Ranks hold different values of something that must be the same everywhere."""


def tensor_digest(tensors: Iterable[Tensor]) -> str:
    """Hex SHA-256 over type, shape and bits of each tensor, in order.

    The memory format does not matter; -0.0 and 0.0 differ. A tensor on a GPU is copied.
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{plain.dtype} {tuple(plain.shape)}\n".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def assert_same_on_all_ranks(name: str, digest: str) -> None:
    """Gather ``digest`` (at most 64 ASCII bytes) from all ranks and compare.

    A collective call over the default process group, to be made outside a backward pass; does
    nothing where there is no process group. Raises RankDisagreementError, on every rank, saying
    which ranks hold which digest of ``name``; ValueError for a digest that is too long.
    """
    encoded = digest.encode("ascii")
    if len(encoded) > _WIDTH:
        raise ValueError(f"a digest has at most {_WIDTH} bytes, not {len(encoded)}")
    if not dist.is_initialized():
        return
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    own = torch.tensor(list(encoded.ljust(_WIDTH)), dtype=torch.uint8, device=device)
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, own)
    holders: dict[str, list[int]] = {}
    for rank, row in enumerate(torch.stack(gathered).cpu().tolist()):
        holders.setdefault(bytes(row).decode("ascii").rstrip(), []).append(rank)
    if len(holders) == 1:
        return
    groups = sorted(holders.items(), key=lambda item: (-len(item[1]), item[1]))
    lines = [
        f"{_ranks_text(ranks)}: {value[:16] or '(empty)'}"
        for value, ranks in groups[:_GROUPS_SHOWN]
    ]
    if len(groups) > _GROUPS_SHOWN:
        lines.append(f"and {len(groups) - _GROUPS_SHOWN} more values")
    raise RankDisagreementError(
        f"{name} differ between ranks",
        why="; ".join(lines),
        next_step="every rank must apply the same averaged gradients to the same weights: "
        "look for a rank with other software, other hardware or faulty memory",
    )


def assert_known_sum() -> None:
    """Reduce numbers whose sum is known; a link or a rank that changes them must not train.

    A collective call over the default process group. Element i of rank r is (r + 1) * (i + 1), so
    the sum over n ranks is n (n + 1) / 2 * (i + 1), exact in float64. Raises CommunicationError on
    the ranks that got something else.
    """
    world, rank = dist.get_world_size(), dist.get_rank()
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    steps = torch.arange(1, _SUMMED + 1, dtype=torch.float64, device=device)
    got = steps * (rank + 1)
    dist.all_reduce(got)
    wanted = steps * (world * (world + 1) // 2)
    if torch.equal(got, wanted):
        return
    wrong = int((got != wanted).sum())
    raise CommunicationError(
        f"an all-reduce of known numbers gave rank {rank} another sum",
        why=f"{wrong} of {_SUMMED} are wrong",
        next_step="look for a faulty link, GPU or memory on this node, or another library version",
    )


def _ranks_text(ranks: Sequence[int]) -> str:
    """``[0, 1, 2, 5]`` as ``ranks 0-2, 5``; ``ranks`` is sorted."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
