"""How more of fourmin is installed: no package index has it, so that its source is named."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit


def install(extra: str) -> str:
    """The command that adds an extra to this installation.

    Where it came from is what pip noted (PEP 610): a checkout, a wheel, a repository. Without that,
    or where the place is gone, a checkout is meant.
    """
    try:
        noted = json.loads(metadata.distribution("fourmin").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        noted = {}
    url = str(noted.get("url", ""))
    if "vcs_info" in noted:
        return f"pip install 'fourmin[{extra}] @ git+{url}'"
    path = unquote(urlsplit(url).path)
    if not url.startswith("file:") or not Path(path).exists():
        return f"pip install '.[{extra}]' in a checkout of fourmin"
    editable = "--editable " if noted.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{path}[{extra}]'"
