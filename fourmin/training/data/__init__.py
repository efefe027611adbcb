"""Feeding a worker: the data order, the geometry of augmentation, and the loaders by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fourmin.errors import FourminError, list_names

if TYPE_CHECKING:
    from fourmin.training.data.loader import Loader

LOADERS = {
    "dali": ("fourmin.training.data.dali", "DaliLoader"),
    "torchvision": ("fourmin.training.data.torchvision_loader", "TorchvisionLoader"),
}
"""Loader name to module and class; a module is imported only when its loader is used."""


def build_loader(name: str, **settings: Any) -> Loader:
    """The loader called `name`, with the keyword arguments of `loader.Loader`.

    Raises FourminError for an unknown name, a missing package or bad settings.
    """
    if name not in LOADERS:
        raise FourminError(f"unknown loader {name!r}", next_step=f"known: {list_names([*LOADERS])}")
    module, class_name = LOADERS[name]
    try:
        loader: Loader = getattr(import_module(module), class_name)(**settings)
    except ModuleNotFoundError as error:
        raise FourminError(
            f"the loader {name} cannot run here",
            f"the package {error.name} is missing",
            "pip install 'fourmin[train]'",
        ) from error
    return loader
