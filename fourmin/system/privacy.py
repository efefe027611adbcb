"""What would name a host or a user, found and taken out before it is written."""

from __future__ import annotations

import getpass
import os
import re
import socket

_TOO_COMMON = {"root", "user", "localhost", "ubuntu", "admin", "test"}
"""Names that say nothing, and words that mean something else."""


def private_words() -> dict[str, str]:
    """Texts that identify this host and its user, each with what may stand for it."""
    words = {os.path.expanduser("~"): "<home>"}
    host = socket.gethostname()
    for name in (socket.getfqdn(), host, host.partition(".")[0]):
        words[name] = "<host>"
    try:
        words[getpass.getuser()] = "<user>"
    except (KeyError, OSError):
        pass  # no user database, as in some containers
    return {
        word: instead
        for word, instead in words.items()
        if len(word) > 2 and word.lower() not in _TOO_COMMON and word != "/"
    }


def named_in(text: str) -> list[str]:
    """Those of `private_words` that stand in `text`."""
    return [word for word in private_words() if _alone(word).search(text)]


def redact(text: str) -> str:
    """`text` without the names of this host, its user and the user's home folder."""
    for word, instead in sorted(private_words().items(), key=lambda item: -len(item[0])):
        text = _alone(word).sub(instead, text)
    return text


def _alone(word: str) -> re.Pattern[str]:
    """A word that is no part of another one."""
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])")
