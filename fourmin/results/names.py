"""Names of files and folders that mean the same on every system, and what desktops leave."""

from __future__ import annotations

import re

LONGEST = 200
TRACE_FILE = "trace.json.gz"
"""What `run --profile` leaves beside a practice run's log."""
MAX_DROPPING_BYTES = 64 * 1024
"""What a desktop leaves is small; more bytes under such a name are hidden ones."""

_PLAIN = re.compile(r"[A-Za-z0-9._+-]+\Z")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|\Z)", re.IGNORECASE)
_DROPPING = re.compile(
    r"(?:\.DS_Store|\._[A-Za-z0-9._+-]+|\.localized|\.directory|(?:eh)?thumbs\.db|desktop\.ini"
    r"|\.(?:nfs|fuse_hidden)[0-9A-Fa-f]+)\Z",
    re.IGNORECASE,
)


def unsafe_name(name: str) -> str:
    """Why a name would be another one, or none, on some system; empty where it is safe."""
    if not _PLAIN.match(name) or len(name) > LONGEST:
        return f"a name that is not plain ASCII letters, digits and . _ + -, at most {LONGEST}"
    if name.endswith("."):
        return "a name that ends with a dot"
    return "a name that Windows reserves" if _RESERVED.match(name) else ""


def wrong_folder_name(name: str) -> str:
    """Why a name cannot be that of a submitter, a system or a campaign; empty where it can."""
    if name and not name[0].isalnum():
        return "a name that does not begin with a letter or a digit"
    return unsafe_name(name)


def is_dropping(name: str) -> bool:
    """Whether a file is one that a desktop or NFS leaves in folders."""
    return _DROPPING.match(name) is not None
