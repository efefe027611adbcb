"""The chips that train: accelerators, or on the CPU the processors in their sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fourmin.base.values import listed, mapping


def chips_of(
    configuration: Mapping[str, Any], hardware: Mapping[str, Any]
) -> tuple[str, int | None]:
    """Model and number, over all nodes, by a configuration and the hardware of one node.

    Where a machine has several models, all are named. A value that is missing, or none that a
    capture gives, makes the model empty or the number None.
    """
    if configuration.get("device") == "cuda":
        kinds = listed(hardware.get("accelerators"))
        model = ", ".join(sorted({str(mapping(kind).get("model")) for kind in kinds}))
        of_a_node = configuration.get("procs_per_node")
    else:
        processor = mapping(hardware.get("processor"))
        model, of_a_node = str(processor.get("model") or ""), processor.get("sockets")
    nodes = configuration.get("nodes")
    if not isinstance(nodes, int) or not isinstance(of_a_node, int):
        return model, None
    return model, nodes * of_a_node
