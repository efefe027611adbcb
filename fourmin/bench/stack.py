"""The training stack, as the microbenchmarks load it when they are called."""

from __future__ import annotations

import importlib
import os
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.system.environment import DEVICE_QUEUES


def load_measurer(name: str, device: str) -> tuple[Any, int]:
    """The module of a name below `fourmin.training`, and the CUDA GPUs that torch sees.

    Raises FourminError without the training stack, and where `device` is cuda and there is none.
    """
    for variable, value in DEVICE_QUEUES.items():
        os.environ.setdefault(variable, value)  # read by CUDA when it is first used
    try:
        torch: Any = importlib.import_module("torch")
        module: Any = importlib.import_module(f"fourmin.training.{name}")
    except ImportError as error:
        raise FourminError(
            "the training stack is not installed", str(error), "pip install 'fourmin[train]'"
        ) from None
    gpus: int = torch.cuda.device_count()
    if device == "cuda" and not gpus:
        raise FourminError("there is no CUDA GPU here", next_step="--device cpu")
    return module, gpus
