"""The script that draws the page's charts: Vega, Vega-Lite and Vega-Embed in one piece.

vl-convert carries them and bundles them on demand, which takes about two seconds of a processor
and holds Python's lock, so it is done by another process while results are collected.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib.util import find_spec

from fourmin.base.errors import FourminError
from fourmin.base.installation import install

_BUNDLE = "import sys, vl_convert; sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())"


@cache
def _bundling() -> subprocess.Popen[bytes]:
    if find_spec("vl_convert") is None:
        raise FourminError(
            "the page needs vl-convert-python, which carries its charts",
            "the plain install writes tables, Markdown, CSV and JSON",
            install("report"),
        )
    return subprocess.Popen(
        [sys.executable, "-c", _BUNDLE], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def start() -> None:
    """Begin to bundle, without waiting. Raises FourminError where vl-convert is missing."""
    _bundling()


@cache
def script() -> str:
    """The script, fit for a script element. Raises FourminError."""
    process = _bundling()
    output, errors = process.communicate()
    if process.returncode != 0 or not output:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise FourminError(
            "vl-convert could not bundle the charts' script",
            last[0] if last else f"exit code {process.returncode}",
            install("report") + " --force-reinstall",
        )
    return output.decode().replace("</script", "<\\/script").replace("<!--", "<\\!--")
