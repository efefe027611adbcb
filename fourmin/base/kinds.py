"""What a file is that is not what was looked for, so that advice fits it."""

from __future__ import annotations

import re

LOOKED_AT = 64 * 1024
"""Bytes of a file's beginning by which its kind is told."""

_BEGINNINGS = (
    (b"\x1f\x8b", "compressed by gzip: unpack it with gunzip"),
    (b"PK\x03\x04", "a zip archive: unpack it with unzip"),
    (b"BZh", "compressed by bzip2: unpack it with bunzip2"),
    (b"\xfd7zXZ", "compressed by xz: unpack it with unxz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: unpack it with unzstd"),
    (b"\xff\xfe", "text in UTF-16: convert it with iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "text in UTF-16: convert it with iconv -f UTF-16 -t UTF-8"),
    (b"version https://git-lfs", "a pointer of Git LFS: fetch the file with git lfs pull"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
)
_PAGE = re.compile(rb"\s*<(!doctype html|html)", re.IGNORECASE)
_TRAINING = re.compile(
    rb"acc(uracy)?@?1\b|top-?1|val[_ ]acc|epoch[ :=\[]*[0-9]|\bloss[ :=]|^DLLL? ", re.I | re.M
)


def kind_of(data: bytes) -> str:
    """What a file with this beginning is, and what makes text of it; '' where that is not known."""
    found = next((kind for start, kind in _BEGINNINGS if data.startswith(start)), "")
    if found or not data:
        return found or "empty"
    if data[257:262] == b"ustar":
        return "a tar archive: unpack it with tar -xf"
    if _PAGE.match(data):
        return "a page of the web: fetch the file itself"
    if data.count(0) * 3 > len(data) and b"\n" in data:
        return "text in UTF-16: convert it with iconv -f UTF-16 -t UTF-8"
    if b"\0" in data:
        return "binary"
    if _TRAINING.search(data) and b":::ML" not in data:
        return "the log of another tool: MLPerf's logging writes lines that begin with :::MLLOG"
    return ""
