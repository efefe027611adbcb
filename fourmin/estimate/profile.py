"""System profiles: what is known of a machine, each number with its source.

A profile is a TOML file, one of those beside this module or the user's own:

    title = "what it is"
    workers_per_node = 8
    capability = "9.0"                   # optional: CUDA's, of its GPUs; from 8.0 on step=auto is
                                         # the fast step
    nccl_algorithms = ["ring", "tree"]   # optional; what `native` can choose from

    [inside]                             # links between the GPUs of a node
    kind = "nvlink"                      # nvlink or pcie: NCCL's latencies
    bytes_per_second = 370.8e9           # bus bandwidth of an all-reduce
    source = "where this is from"

    [between]                            # links between nodes
    bytes_per_second = 400e9             # of a whole node, in each direction
    adapters = 8                         # optional: one rank alone has 1/8 of it
    source = "..."

    [nvls]                               # optional: all-reduce inside a node by NVLS
    bytes_per_second = 480e9             # bus bandwidth
    source = "..."

    [round]                              # one round of point-to-point messages, and what the host
    seconds = 115e-6                     # needs to start a collective; without them those of
    source = "..."                       # dgx-h100 are taken
    [call]
    seconds = 43e-6
    source = "..."

    [memory]                             # optional: of a worker's device
    bytes_per_second = 3.35e12
    source = "..."

    [storage]                            # optional: what a node reads of the images
    bytes_per_second = 2e9
    source = "..."

    [decode]                             # optional: what a worker's share of the node decodes
    images_per_second = 11000
    source = "..."

    [[compute]]                          # what one worker does alone, as often as it is known
    model = "resnet50"
    precision = "fp16"
    step = "fast"                        # optional: for this step of fourmin only
    batch = 256
    images_per_second = 7757
    source = "..."
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError, list_names
from fourmin.base.mishaps import told
from fourmin.base.toml import tomllib

LINK_KINDS = ("nvlink", "pcie")
DEFAULT_PROFILE = "dgx-h100"
NCCL_ALGORITHMS = ("ring", "tree")
_TABLES = (
    "title",
    "workers_per_node",
    "capability",
    "nccl_algorithms",
    "inside",
    "between",
    "compute",
)
_RATES = {
    "nvls": ("bytes_per_second", "all-reduce inside a node by NVLS"),
    "round": ("seconds", "a round of messages"),
    "call": ("seconds", "starting a collective"),
    "memory": ("bytes_per_second", "memory"),
    "storage": ("bytes_per_second", "reading"),
    "decode": ("images_per_second", "decoding"),
}
"""The optional tables: their number, and what it says."""
_OF_SOFTWARE = ("round", "call")
"""Those that say more of the software than of the machine."""
_MOST_BYTES = 1 << 20
_FOLDER = Path(__file__).with_name("profiles")


@dataclass(frozen=True)
class Compute:
    """Images a second of one worker alone, at a batch (images) that it takes in one pass.

    `step` names fourmin's training step that was measured; empty: whatever the run takes.
    `image_size` is theirs in pixels; 0: the model's.
    """

    model: str
    precision: str
    batch: int
    images_per_second: float
    source: str
    step: str = ""
    image_size: int = 0

    @property
    def seconds(self) -> float:
        """Time of one pass."""
        return self.batch / self.images_per_second


@dataclass(frozen=True)
class Profile:
    """A machine. Bandwidths in bytes a second, times in seconds; see the module's text."""

    name: str
    title: str
    workers_per_node: int
    inside_kind: str
    inside_bandwidth: float
    between_bandwidth: float
    compute: tuple[Compute, ...]
    sources: tuple[tuple[str, str], ...]
    """What each number says, and where it is from."""
    adapters: int = 1
    round_seconds: float | None = None
    call_seconds: float = 0.0
    nvls_bandwidth: float = 0.0
    """Bus bandwidth of an all-reduce inside a node by NVLS; 0 where there is none."""
    memory_bandwidth: float | None = None
    storage_bandwidth: float | None = None
    """Of a node; None where nobody knows, as with `decode_rate`."""
    decode_rate: float | None = None
    """Images a second of one worker."""
    image_bytes: float | None = None
    """Mean bytes of an image, where they were measured."""
    nccl_algorithms: tuple[str, ...] = NCCL_ALGORITHMS
    capabilities: tuple[str, ...] = ()
    """CUDA compute capability of its GPUs; empty where the profile does not say."""


def profile_names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_profile(name_or_file: str) -> Profile:
    """A profile by name, or from the user's file. Raises FourminError for what is wrong with it."""
    if name_or_file in profile_names():
        path = _FOLDER / f"{name_or_file}.toml"
        name = name_or_file
    else:
        path = Path(name_or_file)
        name = path.stem
        if not path.is_file():
            raise FourminError(
                f"no system profile {name_or_file!r}",
                "it is neither a known name nor a file",
                f"known: {list_names(profile_names())}; or write one as docs/estimate.md shows",
            )
    with told(f"cannot read the system profile {path}", kind=(OSError, ValueError)):
        data = path.read_bytes()
        if len(data) > _MOST_BYTES:
            raise ValueError("it is larger than a profile can be")
        content = tomllib.loads(data.decode("utf-8"))
    return _profile(name, path, content)


def _profile(name: str, path: Path, content: Mapping[str, Any]) -> Profile:
    reader = _Reader(path)
    reader.only(content, (*_TABLES, *_RATES), "")
    inside = reader.table(content, "inside", ("kind", "bytes_per_second", "source"))
    between = reader.table(content, "between", ("bytes_per_second", "adapters", "source"))
    rows = content.get("compute", [])
    if not isinstance(rows, list) or not rows:
        raise reader.wrong("compute", "at least one [[compute]] table")
    kind = reader.text(inside, "kind", "inside")
    if kind not in LINK_KINDS:
        raise reader.wrong("inside.kind", " or ".join(LINK_KINDS))
    algorithms = content.get("nccl_algorithms", list(NCCL_ALGORITHMS))
    if (
        not isinstance(algorithms, list)
        or not algorithms
        or any(one not in NCCL_ALGORITHMS for one in algorithms)
    ):
        raise reader.wrong("nccl_algorithms", f"some of {list_names(NCCL_ALGORITHMS)}")
    capability = reader.text(content, "capability", "") if "capability" in content else ""
    if capability and not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", capability):
        raise reader.wrong("capability", 'a text such as "9.0"')
    compute = tuple(reader.compute(row, index) for index, row in enumerate(rows, 1))
    sources = {
        "links inside a node": reader.text(inside, "source", "inside"),
        "links between nodes": reader.text(between, "source", "between"),
    }
    rates = {key: reader.rate(content, key) for key in _RATES if key in content}
    if missing := [key for key in _OF_SOFTWARE if key not in rates]:
        known = load_profile(DEFAULT_PROFILE)
        measured = {"round": known.round_seconds or 0.0, "call": known.call_seconds}
        for key in missing:
            source = f"as on {known.name}: {dict(known.sources)[_RATES[key][1]]}"
            rates[key] = measured[key], source
    sources |= {_RATES[key][1]: source for key, (_, source) in rates.items()}
    numbers = {key: value for key, (value, _) in rates.items()}
    return Profile(
        name=name,
        title=reader.text(content, "title", ""),
        workers_per_node=int(reader.number(content, "workers_per_node", "")),
        inside_kind=kind,
        inside_bandwidth=reader.number(inside, "bytes_per_second", "inside"),
        between_bandwidth=reader.number(between, "bytes_per_second", "between"),
        compute=compute,
        sources=tuple(sources.items()),
        adapters=int(reader.number(between, "adapters", "between")) if "adapters" in between else 1,
        round_seconds=numbers["round"],
        call_seconds=numbers["call"],
        nvls_bandwidth=numbers.get("nvls", 0.0),
        memory_bandwidth=numbers.get("memory"),
        storage_bandwidth=numbers.get("storage"),
        decode_rate=numbers.get("decode"),
        nccl_algorithms=tuple(algorithms),
        capabilities=(capability,) if capability else (),
    )


class _Reader:
    """Takes typed values from a profile's tables, and says which one is wrong."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def wrong(self, key: str, wanted: str) -> FourminError:
        return FourminError(
            f"the system profile {self._path} is not complete",
            f"{key}: {wanted} belongs here",
            "docs/estimate.md shows a whole one",
        )

    def only(self, table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
        """Refuse keys that nothing reads: a misspelt one would be left out in silence."""
        for key in table:
            if key not in known:
                raise self.wrong(f"{where}{key}", f"nothing of that name, but {list_names(known)}")

    def table(self, content: Mapping[str, Any], key: str, known: tuple[str, ...]) -> dict[str, Any]:
        table = content.get(key)
        if not isinstance(table, dict):
            raise self.wrong(key, "a table")
        self.only(table, known, f"{key}.")
        return table

    def number(self, table: Mapping[str, Any], key: str, where: str) -> float:
        """A positive, finite number."""
        value = table.get(key)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < float(value or 0) < float("inf"):
            raise self.wrong(f"{where}.{key}".lstrip("."), "a number greater than 0")
        return float(value or 0)

    def rate(self, content: Mapping[str, Any], key: str) -> tuple[float, str]:
        """The number of an optional table, and its source."""
        name, _ = _RATES[key]
        table = self.table(content, key, (name, "source"))
        return self.number(table, name, key), self.text(table, "source", key)

    def text(self, table: Mapping[str, Any], key: str, where: str) -> str:
        """A text that is not empty."""
        value = table.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(f"{where}.{key}".lstrip("."), "a text")
        return value

    def compute(self, row: Any, index: int) -> Compute:
        """One [[compute]] table."""
        where = f"compute {index}"
        if not isinstance(row, dict):
            raise self.wrong(where, "a table")
        self.only(
            row,
            ("model", "precision", "step", "batch", "images_per_second", "source"),
            f"{where}.",
        )
        return Compute(
            model=self.text(row, "model", where),
            precision=self.text(row, "precision", where),
            batch=int(self.number(row, "batch", where)),
            images_per_second=self.number(row, "images_per_second", where),
            source=self.text(row, "source", where),
            step=self.text(row, "step", where) if "step" in row else "",
        )
