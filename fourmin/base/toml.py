"""The reader of TOML, which Python has since 3.11."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["MALFORMED", "tomllib"]

MALFORMED = (ValueError, RecursionError)
"""What bytes raise that are no TOML: no text, no such form, or nested without end."""
