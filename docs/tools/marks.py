"""Pages that people write, with a part between two marks that is made anew."""

from __future__ import annotations


def replace_between(page: str, begin: str, end: str, made: str) -> str:
    """`page` with `made` between its two marks. Raises ValueError where one is missing."""
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"the page needs the lines {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{made}{end}{after}"
