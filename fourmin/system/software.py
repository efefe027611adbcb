"""Versions of everything that takes part in a run, and the digest of this package."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fourmin import __version__
from fourmin.base.files import rulesets_folder

_DISTRIBUTIONS = {
    "torch": ("torch",),
    "torchvision": ("torchvision",),
    "dali": ("nvidia-dali-cuda130", "nvidia-dali-cuda120", "nvidia-dali-cuda110"),
    "numpy": ("numpy",),
    "pillow": ("pillow",),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "cuda": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12"),
}


def installed_version(name: str) -> str | None:
    """Version of a part by its name here, such as `dali`, or None where it is not installed."""
    return _installed(name)[1]


def dali_cuda() -> str | None:
    """The CUDA version that the installed DALI was built for, by its wheel's name."""
    wheel, _ = _installed("dali")
    return f"{wheel[-3:-1]}.{wheel[-1]}" if wheel else None


def _installed(name: str) -> tuple[str, str | None]:
    """The wheel that a part came in, and its version."""
    for distribution in _DISTRIBUTIONS[name]:
        with suppress(metadata.PackageNotFoundError):
            return distribution, metadata.version(distribution)
    return "", None


def triton_installed() -> bool:
    """Whether this Python has Triton, whatever distribution brought it."""
    return find_spec("triton") is not None


def versions() -> dict[str, str | None]:
    """Version of fourmin, Python and each part that trains."""
    return {
        "fourmin": __version__,
        "python": platform.python_version(),
        **{name: installed_version(name) for name in _DISTRIBUTIONS},
    }


def operating_system() -> dict[str, str]:
    """Distribution and kernel release."""
    try:
        pretty = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        pretty = platform.system()
    return {"name": pretty, "kernel": platform.release()}


@cache
def package_digest() -> str:
    """Hex SHA-256 over the names and bytes of this package's sources and its rulesets.

    It is the same for a wheel, the checkout that it was built from, and that checkout's commit.
    """
    folders = {"fourmin": Path(__file__).resolve().parents[1], "rules": rulesets_folder()}
    files = {
        f"{name}/{path.relative_to(folder).as_posix()}": path
        for name, folder in folders.items()
        for path in folder.rglob("*")
        if path.is_file()
    }
    return digest_of({name: files[name].read_bytes() for name in files if in_package(name)})


def in_package(name: str) -> bool:
    """Whether a file of a checkout, named by its path from the top, is in the package digest.

    Waivers, generated pages and other people's published results decide nothing in a run.
    """
    if name.startswith("fourmin/"):
        return name.endswith(".py") and not name.startswith("fourmin/_rulesets/")
    is_data = name.startswith("rules/") and name.endswith(".json")
    return is_data and not name.endswith("/published_results.json")


def digest_of(files: Mapping[str, bytes]) -> str:
    """The package digest of the files that are in it, by their paths in a checkout."""
    digest = hashlib.sha256()
    for name in sorted(files):
        content = hashlib.sha256(files[name]).hexdigest()
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def capture() -> dict[str, Any]:
    return {**versions(), "operating_system": operating_system()}
