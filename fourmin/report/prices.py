"""Stated prices: what an hour of a system costs, by whom and when it was said.

A price is somebody's word, never measured; so it stands with its source and date wherever a cost
made from it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.files import read_given
from fourmin.base.mishaps import told
from fourmin.base.toml import MALFORMED, tomllib

MOST_BYTES = 1 << 20
_FIELDS = ("system", "submitter", "per_hour", "currency", "source", "date")
_EXAMPLE = """it holds tables such as
[[price]]
system = "8xH100"
per_hour = 27.5
currency = "USD"
source = "https://example.org/prices"
date = 2026-11-28"""


@dataclass(frozen=True, slots=True)
class Price:
    """An hour of a whole system; `submitter` is empty where the price is for anybody's."""

    system: str
    submitter: str
    per_hour: float
    currency: str
    source: str
    date: str

    def to_json(self) -> dict[str, Any]:
        """What a cost made from it must say."""
        names = ("currency", "per_hour", "source", "date")
        return {name: getattr(self, name) for name in names}


def price_of(prices: Sequence[Price], submitter: str, system: str) -> Price | None:
    """The price of a submitter's system, one for this submitter first; None without any."""
    fitting = [one for one in prices if one.system == system and one.submitter in ("", submitter)]
    return max(fitting, key=lambda price: bool(price.submitter), default=None)


def load_prices(path: Path) -> tuple[Price, ...]:
    """The prices in a TOML file. Raises FourminError that says what is wrong with it."""
    with told(f"{path} is no price file", _EXAMPLE, MALFORMED), told(f"cannot read {path}"):
        content = tomllib.loads(read_given(path, MOST_BYTES).decode())
    tables = content.get("price")
    if not isinstance(tables, list) or not tables or set(content) != {"price"}:
        raise FourminError(f"{path} is no price file", "it needs [[price]] tables", _EXAMPLE)
    return tuple(_price(path, number, table) for number, table in enumerate(tables, start=1))


def _price(path: Path, number: int, table: Any) -> Price:
    def refuse(why: str) -> FourminError:
        return FourminError(f"price {number} in {path} cannot be used", why, _EXAMPLE)

    if not isinstance(table, dict):
        raise refuse("it is no table")
    unknown = sorted(set(table) - set(_FIELDS))
    if unknown:
        raise refuse(f"unknown key {unknown[0]!r}; known: {', '.join(_FIELDS)}")
    per_hour, day = table.get("per_hour"), table.get("date")
    if isinstance(per_hour, bool) or not isinstance(per_hour, (int, float)):
        raise refuse("per_hour must be a number")
    if not 0 <= per_hour < math.inf:
        raise refuse("per_hour must be 0 or more")
    if type(day) is not date:
        raise refuse("date must be a day, such as 2026-11-28 (without quotes)")
    texts = {name: table.get(name, "") for name in ("system", "submitter", "currency", "source")}
    for name, text in texts.items():
        if not isinstance(text, str) or (not text and name != "submitter"):
            raise refuse(f"{name} must be a text")
    return Price(per_hour=float(per_hour), date=day.isoformat(), **texts)
