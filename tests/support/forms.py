"""One small ImageNet in every form that people have it, with the structure of the real ones."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import struct
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

WNIDS = ("n01440764", "n01443537", "n02105855")
TRAIN, VAL = 4, 2
GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
ILSVRC_IDS = dict(zip(WNIDS, (3, 1, 2), strict=True))
"""The devkit's numbers are not in the order of the WordNet ids."""


def jpeg(seed: int, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (12 + seed % 5, 17, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, kind)
    return out.getvalue()


def small_imagenet() -> list[tuple[str, str, str, bytes]]:
    """(split, wnid, name, bytes): one PNG and one CMYK image among them, as in the real one."""
    images = []
    for label, wnid in enumerate(WNIDS):
        for i in range(TRAIN):
            name = f"{wnid}_{2933 + i}.JPEG"
            kind = "PNG" if (wnid, i) == ("n02105855", 0) else "JPEG"
            mode = "CMYK" if (label, i) == (1, 1) else "RGB"
            images.append(("train", wnid, name, jpeg(10 * label + i, kind, mode)))
    for number in range(1, VAL * len(WNIDS) + 1):
        wnid = WNIDS[number % len(WNIDS)]
        images.append(("val", wnid, f"ILSVRC2012_val_{number:08d}.JPEG", jpeg(100 + number)))
    return images


IMAGES = small_imagenet()


def of(split: str) -> list[tuple[str, str, bytes]]:
    return [(wnid, name, data) for s, wnid, name, data in IMAGES if s == split]


def put(root: Path, *parts: str, data: bytes | str) -> Path:
    path = root.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def tar_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def plain_tree(root: Path) -> list[Path]:
    for split, wnid, name, data in IMAGES:
        put(root, split, wnid, name, data=data)
    return [root]


def class_tars() -> dict[str, bytes]:
    return {
        f"{wnid}.tar": tar_of({name: data for w, name, data in of("train") if w == wnid})
        for wnid in WNIDS
    }


def meta_mat(year: str = "2012") -> bytes:
    """Synsets as the devkit has them: classes first, then one that is above them."""
    names = [f"ILSVRC{year}_ID", "WNID", "words", "gloss", "num_children", "children",
             "wordnet_height", "num_train_images"]  # fmt: skip
    rows = [
        (ILSVRC_IDS[wnid], wnid, "a fish", "it swims", 0, np.zeros((1, 0)), 0, TRAIN)
        for wnid in sorted(WNIDS, key=ILSVRC_IDS.get)
    ]
    rows.append((1001, "n00001740", "entity", "all", 3, np.array([1, 2, 3]), 19, 0))
    synsets = np.zeros((len(rows), 1), dtype=[(name, object) for name in names])
    for at, row in enumerate(rows):
        synsets[at, 0] = row
    out = io.BytesIO()
    savemat(out, {"synsets": synsets})
    return out.getvalue()


def devkit(root: Path, *, year: str = "2012") -> Path:
    truth = "".join(f"{ILSVRC_IDS[wnid]}\n" for wnid, _, _ in of("val"))
    inner = f"ILSVRC{year}_devkit_t12"
    files = {
        f"{inner}/readme.txt": b"read me",
        f"{inner}/data/meta.mat": meta_mat(year),
        f"{inner}/data/ILSVRC{year}_validation_ground_truth.txt": truth.encode(),
    }
    return put(root, f"{inner}.tar.gz", data=gzip.compress(tar_of(files)))


def flat_val() -> dict[str, bytes]:
    return {name: data for _, name, data in reversed(of("val"))}


def official_archives(root: Path) -> list[Path]:
    return [
        put(root, "ILSVRC2012_img_train.tar", data=tar_of(class_tars())),
        put(root, "ILSVRC2012_img_val.tar", data=tar_of(flat_val())),
        devkit(root),
    ]


def download_folder(root: Path) -> list[Path]:
    official_archives(root)
    put(root, "ILSVRC2012_bbox_val_v3.tgz", data=gzip.compress(tar_of({"val/a.xml": b"<a/>"})))
    put(root, "readme.txt", data="what to do")
    return [root]


def extracted_and_flat(root: Path) -> list[Path]:
    for wnid, name, data in of("train"):
        put(root, "train", wnid, name, data=data)
    for name, data in flat_val().items():
        put(root, "val", name, data=data)
    put(root, "data", "meta.mat", data=meta_mat())
    truth = "".join(f"{ILSVRC_IDS[wnid]}\n" for wnid, _, _ in of("val"))
    put(root, "data", GROUND_TRUTH, data=truth)
    return [root]


def extracted_once(root: Path) -> list[Path]:
    for name, data in class_tars().items():
        put(root, "train", name, data=data)
    for name, data in flat_val().items():
        put(root, "val", name, data=data)
    put(root, "val_labels.csv", data="".join(f"{n},{w}\n" for w, n, _ in of("val")))
    return [root]


def kaggle(root: Path) -> list[Path]:
    base = root / "ILSVRC" / "Data" / "CLS-LOC"
    for wnid, name, data in of("train"):
        put(base, "train", wnid, name, data=data)
    for name, data in flat_val().items():
        put(base, "val", name, data=data)
    put(base, "test", "ILSVRC2012_test_00000001.JPEG", data=jpeg(500))
    put(root, "ILSVRC", "Annotations", "CLS-LOC", "val", "ILSVRC2012_val_00000001.xml", data="<a>")
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["ImageId", "PredictionString"])
    writer.writerows([Path(n).stem, f"{w} 85 1 499 272 {w} 3 4 5 6 "] for w, n, _ in of("val"))
    put(root, "LOC_val_solution.csv", data=out.getvalue())
    put(root, "LOC_sample_submission.csv", data="ImageId,PredictionString\nx,1 0 0 0 1 1\n")
    put(root, "LOC_synset_mapping.txt", data="".join(f"{w} a fish, it swims\n" for w in WNIDS))
    return [root]


def junk_and_links(root: Path) -> list[Path]:
    plain_tree(root / "data")
    elsewhere = root.parent / f"{root.name}-other-disk"
    elsewhere.mkdir()
    for wnid in WNIDS[:2]:
        shutil.move(root / "data" / "train" / wnid, elsewhere / wnid)
        (root / "data" / "train" / wnid).symlink_to(elsewhere / wnid)
    put(root, "data", "__MACOSX", "train", WNIDS[0], "._x.JPEG", data=b"junk")
    put(root, "data", "train", "lost+found", "x.JPEG", data=b"junk")
    put(root, "data", "val", WNIDS[0], "._a.JPEG", data=b"junk")
    put(root, "data", "val", ".DS_Store", data=b"junk")
    (root / "data" / "train" / WNIDS[2] / "again").symlink_to(root / "data")
    return [root / "data"]


def one_tar_gz(root: Path) -> list[Path]:
    files = {f"imagenet/{s}/{w}/{n}": d for s, w, n, d in IMAGES}
    return [put(root, "imagenet.tar.gz", data=gzip.compress(tar_of(files)))]


def parquet(root: Path) -> list[Path]:
    """As on Hugging Face: a struct of bytes and path, labels by sorted wnid, names in words."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    words = {"info": {"features": {"label": {"names": ["tench, Tinca tinca", "b", "c d"]}}}}
    for split, word in (("train", "train"), ("val", "validation")):
        rows = [
            ({"bytes": data, "path": f"{Path(name).stem}_{wnid}.JPEG"}, WNIDS.index(wnid))
            for wnid, name, data in of(split)
        ]
        half = len(rows) // 2
        for part, some in enumerate((rows[:half], rows[half:])):
            table = pa.table({"image": [a for a, _ in some], "label": [b for _, b in some]})
            table = table.replace_schema_metadata({"huggingface": json.dumps(words)})
            root.mkdir(exist_ok=True)
            pq.write_table(table, root / f"{word}-{part:05d}-of-00002.parquet", row_group_size=2)
    return [root]


def nameless_parquet(root: Path) -> list[Path]:
    import pyarrow as pa
    from pyarrow import parquet as pq

    root.mkdir(exist_ok=True)
    for split in ("train", "val"):
        rows = of(split)[::-1]
        columns = {"image": [d for *_, d in rows], "label": [WNIDS.index(w) for w, *_ in rows]}
        pq.write_table(pa.table(columns), root / f"{split}.parquet")
    put(root, "LOC_synset_mapping.txt", data="".join(f"{w} a fish\n" for w in WNIDS))
    return [root]


def webdataset(root: Path) -> list[Path]:
    """Keys are names; the label is a number, and the JSON says what the file was called."""
    for split, word in (("train", "train"), ("val", "validation")):
        rows = of(split)
        for part in range(2):
            files = {}
            for wnid, name, data in rows[part::2]:
                key = Path(name).stem
                files[f"{key}.jpg"] = data
                files[f"{key}.cls"] = str(WNIDS.index(wnid)).encode()
                files[f"{key}.json"] = json.dumps(
                    {"label": WNIDS.index(wnid), "filename": f"{wnid}/{name}"}
                ).encode()
            put(root, f"imagenet1k-{word}-{part:04d}.tar", data=tar_of(files))
    return [root]


def _field(number: int, data: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(data)) + data


def _number(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _crc32c(data: bytes) -> int:
    """Bit by bit, as RFC 3720 describes it; then masked."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def tf_example(features: dict[str, bytes | int]) -> bytes:
    """A tf.train.Example, framed as a TFRecord file's record."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, int):
            feature = _field(3, _field(1, _number(value)))
        else:
            feature = _field(1, _field(1, value))
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    data = _field(1, entries)
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", _crc32c(head)) + data + struct.pack("<I", _crc32c(data))


def tfrecord(root: Path) -> list[Path]:
    """As TensorFlow's own script for ImageNet writes them: labels count from 1."""
    for split, word in (("train", "train"), ("val", "validation")):
        rows = of(split)
        for part in range(2):
            data = b"".join(
                tf_example(
                    {
                        "image/height": 12,
                        "image/colorspace": b"RGB",
                        "image/class/label": WNIDS.index(wnid) + 1,
                        "image/class/synset": wnid.encode(),
                        "image/format": b"JPEG",
                        "image/filename": name.encode(),
                        "image/encoded": content,
                    }
                )
                for wnid, name, content in rows[part::2]
            )
            put(root, f"{word}-{part:05d}-of-00002", data=data)
    return [root]


FORMS = (
    plain_tree, official_archives, download_folder, extracted_and_flat, extracted_once, kaggle,
    junk_and_links, one_tar_gz, parquet, nameless_parquet, webdataset, tfrecord,
)  # fmt: skip
