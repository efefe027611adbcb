"""From a model and a configuration to an optimizer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.training.optim.foreach import LearningRate, first_state

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


def split_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The trained parameters of `model` as (adapted, plain), each in the model's order.

    Plain are biases and everything that belongs to a batch normalization; adapted are the weights
    of convolutions and linear layers. The type of the module decides, so that a renamed layer
    does not change sides. A shared parameter appears once.
    Raises TypeError for parameters of a module of any other type.
    """
    adapted: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    seen: set[nn.Parameter] = set()
    for prefix, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            if parameter in seen or not parameter.requires_grad:
                continue
            seen.add(parameter)
            if isinstance(module, _BatchNorm):
                plain.append(parameter)
            elif isinstance(module, (nn.Conv2d, nn.Linear)):
                (plain if parameter is module.bias else adapted).append(parameter)
            else:
                raise TypeError(
                    f"{type(module).__name__} {prefix!r} has parameters that are neither weight, "
                    "bias nor batch normalization"
                )
    return adapted, plain


def build_optimizer(model: nn.Module, config: Configuration) -> Optimizer:
    """The optimizer that `config.optimizer` names, with two parameter groups: adapted, plain.

    With `exclude_bias_and_bn` the plain group has neither weight decay nor adaptation, which is
    for those that adapt the rate of each layer. The state is there at once, so that it can be
    saved, and set to what was saved, before the first step. The learning rate is the base rate
    until `set_learning_rate` is called, before each step.
    """
    adapted, plain = split_parameters(model)
    decay, all_alike = config.weight_decay, not config.exclude_bias_and_bn
    groups: list[dict[str, Any]] = [
        {"params": adapted, "weight_decay": decay, "adapt": True},
        {"params": plain, "weight_decay": decay if all_alike else 0.0, "adapt": all_alike},
    ]
    module = import_module(f"fourmin.training.optim.{config.optimizer}")
    optimizer: Optimizer = module.build(groups, config)
    for parameter in (*adapted, *plain):
        optimizer.state[parameter].update(first_state(OPTIMIZERS[config.optimizer], parameter))
    return optimizer


def set_learning_rate(optimizer: Optimizer, learning_rate: LearningRate) -> None:
    """Give every group of `optimizer` this learning rate; a tensor that is there is filled."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate
