"""Feeding a worker: the data order, the geometry of augmentation, and the loaders by name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fourmin.base.errors import unknown
from fourmin.base.installation import install
from fourmin.base.mishaps import told
from fourmin.recipe.phases import phases_of

if TYPE_CHECKING:
    import torch

    from fourmin.datasets.manifest import Manifest
    from fourmin.recipe.configuration import Configuration
    from fourmin.training.data.loader import Loader

LOADERS = {
    "dali": ("fourmin.training.data.dali", "DaliLoader"),
    "torchvision": ("fourmin.training.data.torchvision_loader", "TorchvisionLoader"),
}
"""Loader name to module and class; a module is imported only when its loader is used."""

_SAME = (
    "global_batch_size", "gradient_accumulation_steps", "image_size", "eval_resize",
    "augmentation", "decoder", "decoded_cache", "eval_rectangles", "crop_area",
)  # fmt: skip
"""What a loader takes from the configuration by its name."""


def build_loader(name: str, **settings: Any) -> Loader:
    """The loader called `name`, with the keyword arguments of `loader.Loader`.

    Raises FourminError for an unknown name, a missing package or bad settings.
    """
    if name not in LOADERS:
        raise unknown(f"unknown loader {name!r}", name, LOADERS)
    module, class_name = LOADERS[name]
    with told(f"the loader {name} cannot run here", install("train"), ModuleNotFoundError):
        loader: Loader = getattr(import_module(module), class_name)(**settings)
    return loader


def open_data(
    config: Configuration,
    *,
    manifest: Manifest,
    data_dir: Path,
    seed: int,
    device: torch.device,
    rank: int = 0,
    world_size: int = 1,
    steps: int | None = None,
) -> Loader:
    """The loader of one worker of a run of so many steps, if that is known.

    Raises FourminError as `build_loader` does.
    """
    import torch

    return build_loader(
        config.loader,
        manifest=manifest,
        data_dir=data_dir,
        seed=seed,
        rank=rank,
        world_size=world_size,
        device=device,
        threads=config.loader_threads,
        mean=config.pixel_mean,
        std=config.pixel_std,
        # What autocast would round to anyway, at half the bytes.
        out_dtype=torch.float16 if config.precision == "fp16" else torch.float32,
        steps=steps,
        phases=phases_of(config),
        **{name: getattr(config, name) for name in _SAME},
    )
