"""Checkpoints are written beside training, complete or absent, and loaded without executing them.

All ranks hold the same state, so rank 0 writes it alone: training waits until it is copied, and
torch.distributed.checkpoint writes the copy in a thread. A folder gets its final name when all of
it is on the disk; whatever a kill leaves has another name.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from fourmin.base.files import sync_folder
from fourmin.launch.job import checkpoint_name, complete_checkpoints
from fourmin.training.state import State

# One rank writes and reads alone, as it is told to; torch wonders each time.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninit")


class BrokenCheckpointError(Exception):
    """A checkpoint that cannot be read. It was removed: an older one, or none, takes its place."""


@dataclass(eq=False)
class CheckpointWriter:
    """Rank 0's writer; `folder` is made with the first checkpoint.

    `before_it_counts` is called in the writing thread when all is written, before the checkpoint
    gets its name. `group` needs a CPU backend; None takes the default group.
    """

    _folder: Path
    _before_it_counts: Callable[[], None]
    _group: dist.ProcessGroup | None = None
    _writing: Future[Any] | None = None

    @property
    def busy(self) -> bool:
        return self._writing is not None and not self._writing.done()

    def begin(self, epoch: int, state: State) -> None:
        """Start to write `state`, tensors on the CPU that nobody changes any more."""
        if self._writing is None:
            self._folder.mkdir(exist_ok=True)
            for left in self._folder.glob(".*"):
                shutil.rmtree(left)
        unnamed = self._folder / f".{checkpoint_name(epoch)}"
        writing = async_save(
            state,
            storage_writer=_Writer(unnamed),
            process_group=self._group,
            no_dist=True,
        )
        assert isinstance(writing, Future)
        self._writing = Future()
        writing.add_done_callback(lambda done: self._complete(epoch, unnamed, done))

    def close(self) -> None:
        """Wait for what is being written."""
        if self._writing is not None:
            self._writing.result()

    def _complete(self, epoch: int, unnamed: Path, done: Future[Any]) -> None:
        assert self._writing is not None
        try:
            done.result()
            self._before_it_counts()
            sync_folder(unnamed)
            named = self._folder / checkpoint_name(epoch)
            shutil.rmtree(named, ignore_errors=True)
            os.rename(unnamed, named)
            sync_folder(self._folder)
            for other in complete_checkpoints(self._folder):
                if other != epoch:
                    shutil.rmtree(self._folder / checkpoint_name(other), ignore_errors=True)
        except (Exception, CheckpointException) as error:
            # A run without its newest checkpoint is still a run.
            print(f"no checkpoint after epoch {epoch}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        finally:
            self._writing.set_result(None)


def load_checkpoint(folder: Path) -> State:
    """The content of a complete checkpoint, on the CPU.

    Nothing in it is executed: tensors are loaded with `weights_only`, and of what describes them
    only plain descriptions are accepted. Raises BrokenCheckpointError when it cannot be read.
    """
    try:
        reader = _Reader(folder)
        described = reader.read_metadata().state_dict_metadata
        state = {
            name: torch.empty(entry.size, dtype=entry.properties.dtype)
            for name, entry in described.items()
            if isinstance(entry, TensorStorageMetadata)  # a description holds no other
        }
        load(state, storage_reader=reader, no_dist=True)
    except (Exception, CheckpointException) as error:  # whatever a broken file makes torch raise
        shutil.rmtree(folder, ignore_errors=True)
        raise BrokenCheckpointError(f"{folder.name}: {type(error).__name__}: {error}") from error
    return state


class _Writer(FileSystemWriter):
    """Writes what it is given, which nobody changes: no second copy."""

    def stage(self, state_dict: Mapping[str, Any]) -> Any:
        return state_dict


_DESCRIPTIONS = {
    "torch.distributed.checkpoint.metadata": {
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", "float32", "float64", "int64", "uint8"},
    "pathlib": {"PosixPath"},
    "pathlib._local": {"PosixPath"},
}
"""What the description of a checkpoint may be made of, by module."""


class _Descriptions(pickle.Unpickler):
    """torch describes a checkpoint by a pickle; this one makes descriptions and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _DESCRIPTIONS.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a checkpoint")
        return super().find_class(module, name)


class _Reader(FileSystemReader):
    """torch's reader, with its description read by `_Descriptions`."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        with open(Path(self.path) / ".metadata", "rb") as file:
            metadata = _read_descriptions(file)
        metadata.storage_meta = StorageMeta(load_id=self.load_id)
        return metadata


def _read_descriptions(file: IO[bytes]) -> Metadata:
    metadata = _Descriptions(file).load()
    if not isinstance(metadata, Metadata):
        raise pickle.UnpicklingError("not the description of a checkpoint")
    return metadata
