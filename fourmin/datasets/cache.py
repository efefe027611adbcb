"""Datasets that fourmin makes itself, in the user's cache: written once, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from fourmin.base.files import user_folder
from fourmin.base.mishaps import told


def cached_tree(
    name: str,
    root: Path | None,
    is_intact: Callable[[Path], bool],
    build: Callable[[Path], None],
) -> Path:
    """The folder `name` below `root` (default: the user's cache), built now if it is not intact.

    `build` fills an empty folder, which then takes the place of what lay there. Any number of
    processes may call this at once. Raises FourminError when the folder cannot be written, and
    whatever `build` raises.
    """
    folder = (user_folder("XDG_CACHE_HOME", ".cache") if root is None else root) / name
    if is_intact(folder):
        return folder
    step = "set XDG_CACHE_HOME to a folder that you can write to"
    with told(f"cannot write the dataset to {folder}", step):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f".{name}.lock")
        with open(lock, "ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            for left in set(folder.parent.glob(f".{name}.*")) - {lock}:  # by one that was killed
                shutil.rmtree(left, ignore_errors=True)
            if not is_intact(folder):
                replace_folder(folder, build)
    return folder


def replace_folder(folder: Path, build: Callable[[Path], None]) -> None:
    """Have `build` fill a new folder beside `folder`, and rename it there."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        build(new)
        if folder.exists():
            os.rename(folder, old)
        os.rename(new, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
