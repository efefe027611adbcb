"""The datasets that a run can have made when no folder is named, by the benchmark's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fourmin.base.errors import FourminError
from fourmin.datasets.digits import ensure_digits
from fourmin.datasets.fashion_mnist import ensure_fashion_mnist, missing_fashion_mnist


class OnDemand(NamedTuple):
    """One dataset: `ensure` makes it where it is not there, and gives its folder.

    `missing` says, without making anything, what `ensure` would lack.
    """

    ensure: Callable[[], Path]
    missing: Callable[[], FourminError | None]


ON_DEMAND = {
    "digits": OnDemand(ensure_digits, lambda: None),
    "fashion-mnist": OnDemand(ensure_fashion_mnist, missing_fashion_mnist),
}
