"""What a piece of code asks of the file system, in order: writes, syncs, new names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows with `sync NAME BYTES`, `sync NAME/` and `OLD -> NEW`, by bare names.

    Everything is really done. The bytes of a sync are those that the file then has.
    """
    told: list[str] = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def synced(file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        path = Path(os.readlink(f"/proc/self/fd/{number}"))
        told.append(f"sync {path.name}/" if path.is_dir() else
                    f"sync {path.name} {path.stat().st_size}")  # fmt: skip
        fsync(file)

    def named(act: Any) -> Any:
        def renamed(old: Any, new: Any) -> None:
            told.append(f"{Path(old).name} -> {Path(new).name}")
            act(old, new)

        return renamed

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", named(rename))
    monkeypatch.setattr(os, "replace", named(replace))
    return told
