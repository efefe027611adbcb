"""From a model and a configuration to an optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD, Optimizer

from fourmin.base.errors import FourminError
from fourmin.training.optim.lars import Lars, LearningRate

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

    Reads optimizer, base_learning_rate, momentum, nesterov, weight_decay, exclude_bias_and_bn and
    lars_*. With `exclude_bias_and_bn` the plain group has neither weight decay nor adaptation.
    The learning rate is the base rate until `set_learning_rate` is called, before each step.
    SGD is torch's: the learning rate is outside the momentum, v = m * v + g; w -= lr * v.
    Raises FourminError for an unknown optimizer, LARS with Nesterov momentum, or Nesterov without
    momentum.
    """
    adapted, plain = split_parameters(model)
    decay = config.weight_decay
    groups: list[dict[str, Any]] = [
        {"params": adapted, "weight_decay": decay},
        {"params": plain, "weight_decay": 0.0 if config.exclude_bias_and_bn else decay},
    ]
    if config.optimizer == "lars":
        if config.nesterov:
            raise FourminError(
                "LARS has no Nesterov form here",
                "MLPerf's reference points assume plain momentum",
                "--set nesterov=false, or --set optimizer=sgd",
            )
        groups[0]["adapt"] = True
        groups[1]["adapt"] = not config.exclude_bias_and_bn
        return Lars(
            groups,
            lr=config.base_learning_rate,
            momentum=config.momentum,
            eta=config.lars_eta,
            epsilon=config.lars_epsilon,
            clip=config.lars_clip,
        )
    if config.optimizer == "sgd":
        if config.nesterov and config.momentum == 0:
            raise FourminError(
                "Nesterov momentum needs a momentum greater than 0",
                next_step="--set momentum=0.9, or --set nesterov=false",
            )
        return SGD(
            groups,
            lr=config.base_learning_rate,
            momentum=config.momentum,
            nesterov=config.nesterov,
            foreach=True,
        )
    raise FourminError(f"unknown optimizer {config.optimizer!r}", next_step="known: lars, sgd")


def set_learning_rate(optimizer: Optimizer, learning_rate: LearningRate) -> None:
    """Give every group of `optimizer` this learning rate; a tensor that is there is filled."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate
