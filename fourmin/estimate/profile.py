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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError, list_names
from fourmin.base.files import read_given
from fourmin.base.mishaps import told
from fourmin.base.toml import MALFORMED, tomllib

DEFAULT_PROFILE = "dgx-h100"
NCCL_ALGORITHMS = ("ring", "tree")
_MOST_BYTES = 1 << 20
_FOLDER = Path(__file__).with_name("profiles")

Kind = tuple[str, Callable[[Any], bool]]
"""What belongs at a key, in words, and whether a value is that."""
_TEXT: Kind = ("a text", lambda value: isinstance(value, str) and bool(value.strip()))
_NUMBER: Kind = (
    "a number from 1e-12 to 1e18",
    lambda value: type(value) in (int, float) and 1e-12 <= value <= 1e18,
)
_COUNT: Kind = (
    "a whole number from 1 to a million",
    lambda value: type(value) is int and 1 <= value <= 10**6,
)
_TABLE: Kind = ("a table", lambda value: isinstance(value, dict))
_LINK: Kind = ("nvlink or pcie", lambda value: value in ("nvlink", "pcie"))
_ALGORITHMS: Kind = (
    f"some of {list_names(NCCL_ALGORITHMS)}",
    lambda value: (
        isinstance(value, list) and bool(value) and all(one in NCCL_ALGORITHMS for one in value)
    ),
)
_CAPABILITY: Kind = (
    'a text such as "9.0"',
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", value)),
)
_COMPUTE: Kind = (
    "at least one [[compute]] table",
    lambda value: (
        isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)
    ),
)
_RATES = {
    "nvls": ("bytes_per_second", "nvls_bandwidth", "all-reduce inside a node by NVLS"),
    "round": ("seconds", "round_seconds", "a round of messages"),
    "call": ("seconds", "call_seconds", "starting a collective"),
    "memory": ("bytes_per_second", "memory_bandwidth", "memory"),
    "storage": ("bytes_per_second", "storage_bandwidth", "reading"),
    "decode": ("images_per_second", "decode_rate", "decoding"),
}
"""The optional tables: their number, its field of `Profile`, and what it says."""
_OF_SOFTWARE = ("round", "call")
"""Those that say more of the software than of the machine."""
_OPTIONAL = ("capability", "nccl_algorithms", "adapters", "step", *_RATES)
_WHOLE = {
    "title": _TEXT,
    "workers_per_node": _COUNT,
    "capability": _CAPABILITY,
    "nccl_algorithms": _ALGORITHMS,
    "inside": _TABLE,
    "between": _TABLE,
    "compute": _COMPUTE,
    **dict.fromkeys(_RATES, _TABLE),
}
_INSIDE = {"kind": _LINK, "bytes_per_second": _NUMBER, "source": _TEXT}
_BETWEEN = {"bytes_per_second": _NUMBER, "adapters": _COUNT, "source": _TEXT}
_OF_COMPUTE = {
    **dict.fromkeys(("model", "precision", "step", "source"), _TEXT),
    "batch": _COUNT,
    "images_per_second": _NUMBER,
}


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
    with told(f"cannot read the system profile {path}", kind=(OSError, *MALFORMED)):
        content = tomllib.loads(read_given(path, _MOST_BYTES).decode())
    return _profile(name, path, content)


def _profile(name: str, path: Path, content: Mapping[str, Any]) -> Profile:
    _check(path, "", content, _WHOLE)
    inside, between = content["inside"], content["between"]
    _check(path, "inside.", inside, _INSIDE)
    _check(path, "between.", between, _BETWEEN)
    for index, row in enumerate(content["compute"], 1):
        _check(path, f"compute {index}.", row, _OF_COMPUTE)
    sources = {"links inside a node": inside["source"], "links between nodes": between["source"]}
    rates: dict[str, float] = {}
    for key, (number, field, says) in _RATES.items():
        if key in content:
            _check(path, f"{key}.", content[key], {number: _NUMBER, "source": _TEXT})
            rates[field], sources[says] = float(content[key][number]), content[key]["source"]
    if missing := [key for key in _OF_SOFTWARE if key not in content]:
        known = load_profile(DEFAULT_PROFILE)
        for key in missing:
            _, field, says = _RATES[key]
            rates[field] = getattr(known, field)
            sources[says] = f"as on {known.name}: {dict(known.sources)[says]}"
    return Profile(
        name=name,
        title=content["title"],
        workers_per_node=content["workers_per_node"],
        inside_kind=inside["kind"],
        inside_bandwidth=float(inside["bytes_per_second"]),
        between_bandwidth=float(between["bytes_per_second"]),
        compute=tuple(
            Compute(
                row["model"],
                row["precision"],
                row["batch"],
                float(row["images_per_second"]),
                row["source"],
                row.get("step", ""),
            )
            for row in content["compute"]
        ),
        sources=tuple(sources.items()),
        adapters=between.get("adapters", 1),
        nccl_algorithms=tuple(content.get("nccl_algorithms", NCCL_ALGORITHMS)),
        capabilities=(content["capability"],) if "capability" in content else (),
        **rates,
    )


def _check(path: Path, where: str, table: Mapping[str, Any], wanted: Mapping[str, Kind]) -> None:
    """Refuse a table that lacks something, or has what nothing reads: a misspelt key would be left
    out in silence. Raises FourminError.
    """
    wrong = [
        (key, f"nothing of that name, but {list_names(wanted)}")
        for key in table
        if key not in wanted
    ]
    wrong += [
        (key, words)
        for key, (words, fits) in wanted.items()
        if (key in table or key not in _OPTIONAL) and not fits(table.get(key))
    ]
    for key, words in wrong:
        raise FourminError(
            f"the system profile {path} is not complete",
            f"{where}{key}: {words} belongs here",
            "docs/estimate.md shows a whole one",
        )
