"""Presets: plain functions that return a whole configuration, by name.

A preset's docstring says in its first line what it is, and then where its settings come from
and what of it was never run here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from fourmin.base.errors import FourminError, list_names
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets.alexnet import alexnet_32k, alexnet_64k, alexnet_512
from fourmin.recipe.presets.digits import digits
from fourmin.recipe.presets.fashion_mnist import fashion_mnist
from fourmin.recipe.presets.fractals import fractals_resnet50
from fourmin.recipe.presets.resnet50 import (
    resnet50_8k,
    resnet50_32k,
    resnet50_64k,
    resnet50_256,
    resnet50_fastai,
)
from fourmin.recipe.presets.tiny_imagenet import tiny_imagenet

Preset = Callable[[], Configuration]

PRESETS: dict[str, Preset] = {
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "tiny-imagenet": tiny_imagenet,
    "fractals-resnet50": fractals_resnet50,
    "resnet50-256": resnet50_256,
    "resnet50-8k": resnet50_8k,
    "resnet50-32k": resnet50_32k,
    "resnet50-64k": resnet50_64k,
    "resnet50-fastai": resnet50_fastai,
    "alexnet-512": alexnet_512,
    "alexnet-32k": alexnet_32k,
    "alexnet-64k": alexnet_64k,
}

DEFAULT = "digits"


def load_preset(name: str) -> Configuration:
    """The configuration of a preset. Raises FourminError, naming the known ones."""
    if name not in PRESETS:
        raise FourminError(
            f"no preset {name!r}",
            f"known: {list_names([*PRESETS])}",
            "`fourmin presets` describes them",
        )
    return PRESETS[name]()


def describe_preset(name: str) -> tuple[str, str]:
    """The first line of a preset's description, and all of it."""
    text = inspect.getdoc(PRESETS[name]) or ""
    return text.partition("\n")[0], text
