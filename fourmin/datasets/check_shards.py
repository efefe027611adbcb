"""The check of a folder of shards: every sample is read, compared with the manifest and decoded.

Refused and counted is what `check_tree` refuses and counts, and beside it every byte that is
not what the manifest and the format ask for: the shard and the sample are named.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.datasets.catalogue import Catalogue
from fourmin.datasets.images import Scanned, printable, require_pillow, scan_image
from fourmin.datasets.manifest import MANIFEST_NAME, SPLITS, Manifest
from fourmin.datasets.pool import Progress, spread
from fourmin.datasets.report import NOTHING_KNOWN, CheckReport, Known
from fourmin.datasets.shards import ShardIndex, read_samples, require_finished, sample_name


def check_shards(
    data_dir: Path,
    workers: int | None = None,
    progress: Progress | None = None,
    *,
    known: Known = NOTHING_KNOWN,
) -> CheckReport:
    """Check the shards in `data_dir` with `workers` processes (default: every core).

    `known` as `check_tree` has it. The manifest is compared with and not written;
    the report has it when there is no problem. Raises FourminError when manifest or index
    cannot be used or Pillow is missing.
    """
    require_pillow()
    require_finished(data_dir)
    started = time.monotonic()
    _load.cache_clear()
    manifest, index = _load(data_dir)
    report, catalogue = CheckReport(data_dir, shards=len(index.shards)), Catalogue()
    images, done = sum(len(manifest.split(name)) for name in SPLITS), 0
    workers = min(len(index.shards), workers or len(os.sched_getaffinity(0)))
    numbers = range(len(index.shards))
    for number, found in spread(
        _scan_shard, data_dir, numbers, workers, f"the check of {data_dir}"
    ):
        shard = index.shards[number]
        catalogue.add_seen(os.fsencode(shard.name), found)
        for one in found:
            if one.row is None:
                report.problem(one.name, one.problem)
        done += shard.samples
        if progress is not None:
            progress(done, images)
    catalogue.sort()
    report.settle(catalogue, known, {})
    seen, report.manifest = report.manifest, None
    if seen and (seen.class_names, seen.splits) != (manifest.class_names, manifest.splits):
        what = "lists other widths, heights or classes than the images have"
        report.problem(MANIFEST_NAME, what)
    elif seen:
        report.manifest, report.manifest_path = manifest, data_dir / MANIFEST_NAME
    report.seconds = time.monotonic() - started
    return report


@cache
def _load(data_dir: Path) -> tuple[Manifest, ShardIndex]:
    """Manifest and index of a folder; read once in each process."""
    manifest = Manifest.load(data_dir / MANIFEST_NAME)
    return manifest, ShardIndex.load(data_dir, manifest)


def _scan_shard(data_dir: Path, number: int) -> tuple[int, list[Scanned]]:
    manifest, index = _load(data_dir)
    shard = index.shards[number]
    split = manifest.split(shard.split)
    found = []
    try:
        for sample in read_samples(data_dir / shard.name, shard, split):
            name = printable(sample_name(shard, split, sample.number))
            if sample.fault:
                found.append(Scanned(name, None, sample.fault))
            else:
                found.append(scan_image(sample.data, name, split.name, split.paths[sample.number]))
    except FourminError as error:
        found.append(Scanned(shard.name, None, error.what))
    except OSError as error:
        found.append(Scanned(shard.name, None, f"cannot be read: {error.strerror or error}"))
    return number, found
