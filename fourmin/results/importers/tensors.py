"""The tensors of ResNet-50 by the names that MLPerf v1.0 to v3.0 asked logs to use."""

from __future__ import annotations

from collections.abc import Iterator

_UNITS = (3, 4, 6, 3)


def _names() -> Iterator[str]:
    yield from ("conv0_weight", "bn0_gamma", "bn0_beta", "fc1_weight", "fc1_bias")
    for stage, units in enumerate(_UNITS, 1):
        for unit in range(1, units + 1):
            block = f"stage{stage}_unit{unit}"
            for layer in (1, 2, 3):
                yield f"{block}_conv{layer}_weight"
                yield f"{block}_bn{layer}_gamma"
                yield f"{block}_bn{layer}_beta"
            if unit == 1:
                yield from (f"{block}_conv1sc_weight", f"{block}_bnsc_gamma", f"{block}_bnsc_beta")


TENSORS = frozenset(_names())
"""Convolutions, batch normalizations and the classifier: 161 tensors."""
