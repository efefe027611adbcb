"""AlexNet's forward and backward pass, written out with the fused kernels.

The mathematics is that of `fourmin.training.models.alexnet`; the tests hold the two together. Bias,
ReLU, pooling and normalization of a layer are a few passes over its activation; the fully connected
layers are autograd's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fourmin.training.fast.convolution import FusedConvolution
from fourmin.training.fast.fills import ZeroedBlock
from fourmin.training.fast.graphs import Cut
from fourmin.training.fast.normalization import FusedBatchNorm, launch_pool_gradient
from fourmin.training.fast.plan import FusionPlan
from fourmin.training.fast.resnet import Sink
from fourmin.training.fast.rewritten import DenseConvolution, FoldedConvolution
from fourmin.training.fast.workspace import Workspace, empty_like_activation
from fourmin.training.models.alexnet import AlexNet, refuse_other_sizes
from fourmin.training.models.batchnorm import shared_group
from fourmin.training.models.head import linear_fp32

_POOLED = (1, 2, 5)


class _Layer:
    """normalization(pool(relu(convolution + bias))), the pooling in some."""

    def __init__(self, convolution: FusedConvolution, norm: FusedBatchNorm, pools: bool) -> None:
        self.convolution = convolution
        self.norm = norm
        self._pools = pools
        assert convolution.module.bias is not None
        self.bias = convolution.module.bias
        # As the kernels of normalizations read it: scale 1 and the bias as shift.
        self._affine = torch.ones(4, convolution.outputs, device=self.bias.device)
        self._source: Tensor | None = None
        self._active: Tensor | None = None  # what is normalised
        self._taps: Tensor | None = None
        self._sizes = (0, 0)

    def refresh(self) -> None:
        self.convolution.refresh()
        self._affine[3].copy_(self.bias)

    def forward(self, source: Tensor) -> Tensor:
        x = self.convolution.forward(source)
        if self._pools:
            active, self._taps = self.norm.pool_of_biased(x, self._affine)
        else:
            active = self.norm.relu_of_biased(x, self._affine)
        self._source, self._active, self._sizes = source, active, (x.shape[2], x.shape[3])
        self.norm.statistics(active)
        return self.norm.normalized(active)

    def backward(self, dy: Tensor, sink: Sink) -> tuple[Tensor, Tensor]:
        """The gradient of the convolution's output, and the convolution's input."""
        source, active, taps = self._source, self._active, self._taps
        self._source = self._active = self._taps = None
        assert source is not None
        assert active is not None
        dx = self.norm.gradient_before_relu(dy, active)
        sink.written(self.norm.module.bias, self.norm.module.weight)
        sink.weight(self.bias, dx.sum(dim=(0, 2, 3), dtype=torch.float32))
        if taps is not None:
            pooled, dx = dx, empty_like_activation(dx, dx.shape[1], *self._sizes)
            launch_pool_gradient(pooled, taps, dx, padding=0)
        convolution = self.convolution
        sink.weight(convolution.module.weight, convolution.weight_gradient(dx, source))
        return dx, source


class FusedAlexNet:
    """Forward and backward of an `AlexNet`; what `FusedResNet` is for residual networks.

    `halves` holds the working copy of every convolution's weight, and of the first two fully
    connected layers'; the last one computes in FP32.
    """

    def __init__(self, model: AlexNet, halves: Mapping[Tensor, Tensor], plan: FusionPlan) -> None:
        self.model = model
        self._halves = halves
        workspace = Workspace(model.conv1.weight.device, plan, shared_group(model.bn1))
        self._workspace = workspace
        self.stem = FoldedConvolution(model.conv1, halves[model.conv1.weight], workspace)
        self._layers = []
        for number in range(1, 6):
            module, norm = model.get_submodule(f"conv{number}"), model.get_submodule(f"bn{number}")
            assert isinstance(module, nn.Conv2d)
            assert isinstance(norm, _BatchNorm)
            kind = FusedConvolution if module.groups == 1 else DenseConvolution
            convolution = (
                self.stem if number == 1 else kind(module, halves[module.weight], workspace)
            )
            fused = FusedBatchNorm(norm, workspace)
            self._layers.append(_Layer(convolution, fused, number in _POOLED))
        counters = (layer.norm.module.num_batches_tracked for layer in self._layers)
        self._counters = [counter for counter in counters if counter is not None]

    @property
    def zeroed(self) -> ZeroedBlock:
        """Memory that each pass fills with zeros."""
        return self._workspace.zeroed

    def refresh(self) -> None:
        """Take over weights and biases; call it after each change of them."""
        for layer in self._layers:
            layer.refresh()

    def input_buffer(self, images: Tensor) -> Tensor:
        """Memory for what `stem.fill` makes of images of this shape.

        Raises FourminError for images of another size than the model takes.
        """
        refuse_other_sizes(images)
        return self.stem.input_buffer(images)

    def loss_and_gradients(
        self,
        images: Tensor,
        loss_of: Callable[[Tensor], Tensor],
        scale: Tensor,
        sink: Sink,
        cut: Cut,
        *,
        accumulate: bool,
    ) -> Tensor:
        """One forward and backward pass over a filled buffer; see `FusedResNet`.

        Dropout draws from torch's generator, in the order of the model's own forward pass.
        """
        self._workspace.begin(cut)
        torch._foreach_add_(self._counters, 1)
        x = images
        for layer in self._layers:
            layer.norm.accumulate = accumulate
            x = layer.forward(x)
        loss, dy = self._classify(x, loss_of, scale, sink)
        for layer in reversed(self._layers):
            dx, source = layer.backward(dy, sink)
            if layer is not self._layers[0]:
                dy = layer.convolution.data_gradient(dx, source)
        return loss

    def _classify(
        self, x: Tensor, loss_of: Callable[[Tensor], Tensor], scale: Tensor, sink: Sink
    ) -> tuple[Tensor, Tensor]:
        """The loss, and the gradient of x [n, c, h, w], in channels-last memory."""
        model, hidden = self.model, (self.model.fc6, self.model.fc7)
        features = x.flatten(1).requires_grad_()
        weights = [self._halves[layer.weight].detach().requires_grad_() for layer in hidden]
        parameters = [model.fc8.bias, model.fc8.weight]
        wanted = [features, model.fc8.bias, model.fc8.weight]
        with torch.enable_grad():
            h = features
            for layer, weight in zip(hidden, weights, strict=True):
                h = functional.linear(h, weight, layer.bias.to(h.dtype))
                h = functional.dropout(functional.relu(h, inplace=True), model.dropout.p)
                parameters += [layer.bias, layer.weight]
                wanted += [layer.bias, weight]
            loss = loss_of(linear_fp32(model.fc8, h))
            gradient, *found = torch.autograd.grad(loss * scale, wanted)
        for parameter, value in zip(parameters, found, strict=True):
            sink.weight(parameter, value)
        spread = torch.empty_like(x)
        spread.copy_(gradient.view_as(x))
        return loss.detach(), spread
