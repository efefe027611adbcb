"""A set of ImageNet's size goes through `data prepare` in little memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fourmin.datasets.fashion_mnist import encode_png
from fourmin.datasets.manifest import MANIFEST_NAME
from fourmin.datasets.shards import END, member_header, padded

TRAIN, VAL, CLASSES = 1_281_167, 50_000, 1_000
MOST_KIB = 1 << 20

# Not RUSAGE_CHILDREN: it holds the parent's peak too, as it was when a child was started (vfork).
RUN = """
import resource, sys, threading, time
from pathlib import Path
from fourmin.cli.main import main

peaks = {}

def watch():
    while True:
        for children in Path("/proc/self/task").glob("*/children"):
            try:
                for child in children.read_text().split():
                    status = Path(f"/proc/{child}/status").read_text()
                    peaks[child] = int(status.partition("VmHWM:")[2].split()[0])
            except (OSError, IndexError):
                continue
        time.sleep(0.05)

threading.Thread(target=watch, daemon=True).start()
try:
    main()
finally:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print("peak KiB", own, max(peaks.values()), file=sys.stderr)
"""


def member(name: str, data: bytes) -> bytes:
    return member_header(name, len(data)) + data + bytes(padded(len(data)) - len(data))


def image(number: int) -> bytes:
    return encode_png(number.to_bytes(4, "big"), 4, 1)


def write_archives(root: Path, train: int, val: int) -> list[Path]:
    """An archive of class tars and one of validation images, with a CSV of their labels."""
    wnids = [f"n{label:08d}" for label in range(CLASSES)]
    paths = [root / "ILSVRC2012_img_train.tar", root / "ILSVRC2012_img_val.tar", root / "val.csv"]
    with paths[0].open("wb") as file:
        for label, wnid in enumerate(wnids):
            numbers = range(label, train, CLASSES)
            inside = b"".join(member(f"{wnid}_{n}.JPEG", image(n)) for n in numbers) + END
            file.write(member(f"{wnid}.tar", inside))
        file.write(END)
    names = [f"ILSVRC2012_val_{n + 1:08d}" for n in range(val)]
    with paths[1].open("wb") as file:
        for n, name in enumerate(names):
            file.write(member(f"{name}.JPEG", image(train + n)))
        file.write(END)
    lines = (f"{name},{wnids[n % CLASSES]}\n" for n, name in enumerate(names))
    paths[2].write_text("".join(lines))
    return paths


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_names_of_imagenets_number_take_less_than_a_gibibyte(tmp_path):
    sources = write_archives(tmp_path, TRAIN, VAL)
    command = ["data", "prepare", *map(str, sources), str(tmp_path / "out"), "--workers", "2"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    own, largest_child = map(int, re.findall(r"peak KiB (\d+) (\d+)", done.stderr)[0])
    # Two processes beside the command.
    assert own + 2 * largest_child < MOST_KIB, (own, largest_child)
    with (tmp_path / "out" / MANIFEST_NAME).open("rb") as file:
        assert sum(1 for _ in file) == 1 + TRAIN + VAL
