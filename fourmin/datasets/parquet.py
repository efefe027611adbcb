"""Images in parquet files, as dataset hubs keep them: bytes, and a label."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.installation import install
from fourmin.base.mishaps import told
from fourmin.datasets.images import damaged

_ROWS = 64
"""Held at a time."""
_LABELS = ("label", "labels", "cls", "class", "target", "wnid", "synset")
_NAMES = ("path", "filename", "file_name", "name")


def parquet_images(path: Path) -> Iterator[tuple[str, bytes]]:
    """The samples of a parquet file as members of a WebDataset: a JSON with the label, the image.

    Raises FourminError where pyarrow is missing, the file cannot be read or has no images and
    labels.
    """
    with told(f"{path} cannot be read here", install("parquet"), ImportError):
        import pyarrow
        from pyarrow import parquet
    try:
        file = parquet.ParquetFile(path, memory_map=True)
        schema = file.schema_arrow
        image, label = _columns(path, schema, pyarrow.types)
        names = _class_names(schema.metadata or {}, label)
        wanted = [image, label, *(name for name in _NAMES if name in schema.names)]
        number = 0
        for batch in file.iter_batches(_ROWS, columns=wanted, use_threads=False):
            for row in batch.to_pylist():
                data, value = row[image], row[label]
                if isinstance(data, dict):
                    row, data = {**row, **data}, data["bytes"]
                if not isinstance(data, bytes):
                    raise damaged(path, f"row {number} has no bytes of an image in it")
                if names and isinstance(value, int) and 0 <= value < len(names):
                    value = names[value]
                name = next((row[one] for one in _NAMES if row.get(one)), None)
                said = {"label": value, "filename": name}
                yield f"{number:09d}.json", json.dumps(said).encode()
                yield f"{number:09d}.jpg", data
                number += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise damaged(path, str(error)[:300]) from error


def _columns(path: Path, schema: Any, types: Any) -> tuple[str, str]:
    """The names of the columns of images and of labels."""

    def is_image(kind: Any) -> bool:
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    images = [
        f.name
        for f in schema
        if is_image(f.type)
        or (types.is_struct(f.type) and any(g.name == "bytes" and is_image(g.type) for g in f.type))
    ]
    labels = [
        f.name
        for f in schema
        if f.name.lower() in _LABELS and (types.is_integer(f.type) or types.is_string(f.type))
    ]
    for found, what in ((images, "the bytes of images"), (labels, "labels")):
        if not found:
            raise FourminError(
                f"{path} is a parquet file without {what}",
                f"its columns are {', '.join(schema.names)}",
                "name parquet files with a column of images (binary, or a struct with `bytes`) and "
                "one called `label`, as train-00000-of-00294.parquet has",
            )
    return images[0], labels[0]


def _class_names(metadata: Mapping[bytes, bytes], label: str) -> Sequence[str]:
    """The classes' names that Hugging Face's datasets leave in a schema, where folders could have
    them: those of ImageNet are words, for what its publishers call by a WordNet id.
    """
    try:
        names = json.loads(metadata[b"huggingface"])["info"]["features"][label]["names"]
        return names if all(re.fullmatch(r"[\w.-]+", name) for name in names) else ()
    except (KeyError, TypeError, ValueError):
        return ()
