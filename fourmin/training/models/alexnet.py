"""AlexNet with batch normalization, as Jia et al. 2018 trained it.

Known from published sources:
- NVCaffe's network (models/alexnet_bn/train_val2.prototxt in borisgin/nvcaffe): channels 96, 256,
  384, 384, 256; convolutions 2, 4 and 5 in two groups (as Krizhevsky et al. 2012); every
  convolution with a bias; batch normalization instead of LRN after pool1, pool2, relu3 and relu4;
  FC6 and FC7 of 4,096 with dropout 0.5; crop 227.
- Jia et al. 2018 (arXiv 1807.11205, figure 3) add batch normalization after pool5:
  Conv5/ReLU -> Pool5 -> BN -> FC6.

Chosen here, because no source that could be read says it:
- every batch normalization has gamma and beta. NVCaffe's file switches them off, but Jia et al.
  report what weight decay on beta and gamma costs, so theirs had them;
- Jia et al. do not say whether their convolutions are grouped; NVCaffe's are, so these are;
- initial weights are those of the configured scheme (`fourmin.training.models.init`), not
  Caffe's fillers, and biases start at 0.

Parameters with 1,000 classes, by hand: conv1 34,944; conv2 307,456; conv3 885,120;
conv4 663,936; conv5 442,624; fc6 37,752,832; fc7 16,781,312; fc8 4,097,000: 60,965,224.
Batch normalization 2 * (96 + 256 + 384 + 384 + 256) = 2,752. Together 60,967,976.

Dropout draws from torch's default generator of the model's device. The worker seeds it from
(seed, rank), so masks are reproducible for a given number of workers and differ between ranks.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from fourmin.base.errors import FourminError
from fourmin.training.models.head import linear_fp32

IMAGE_SIZE = 227
"""Height and width (pixels) that the fully connected layers are made for."""


def refuse_other_sizes(images: Tensor) -> None:
    """Raises FourminError for images [n, c, h, w] that an AlexNet cannot take."""
    height, width = images.shape[-2:]
    if (height, width) != (IMAGE_SIZE, IMAGE_SIZE):
        raise FourminError(
            f"AlexNet cannot take images of {height} x {width} pixels",
            f"its fully connected layers are made for {IMAGE_SIZE} x {IMAGE_SIZE}",
            f"--set image_size={IMAGE_SIZE}",
        )


class AlexNet(nn.Module):
    """Five convolutions, three fully connected layers; 227x227 images only."""

    def __init__(self, num_classes: int, batch_norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, 11, stride=4)
        self.bn1 = batch_norm(96)
        self.conv2 = nn.Conv2d(96, 256, 5, padding=2, groups=2)
        self.bn2 = batch_norm(256)
        self.conv3 = nn.Conv2d(256, 384, 3, padding=1)
        self.bn3 = batch_norm(384)
        self.conv4 = nn.Conv2d(384, 384, 3, padding=1, groups=2)
        self.bn4 = batch_norm(384)
        self.conv5 = nn.Conv2d(384, 256, 3, padding=1, groups=2)
        self.bn5 = batch_norm(256)
        self.pool = nn.MaxPool2d(3, stride=2)
        self.fc6 = nn.Linear(256 * 6 * 6, 4096)
        self.fc7 = nn.Linear(4096, 4096)
        self.fc8 = nn.Linear(4096, num_classes)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised images [n, 3, 227, 227] to FP32 logits [n, num_classes].

        Raises FourminError for images of another size.
        """
        refuse_other_sizes(x)
        x = self.bn1(self.pool(functional.relu(self.conv1(x), inplace=True)))  # 27 x 27
        x = self.bn2(self.pool(functional.relu(self.conv2(x), inplace=True)))  # 13 x 13
        x = self.bn3(functional.relu(self.conv3(x), inplace=True))
        x = self.bn4(functional.relu(self.conv4(x), inplace=True))
        x = self.bn5(self.pool(functional.relu(self.conv5(x), inplace=True)))  # 6 x 6
        x = x.flatten(1)
        x = self.dropout(functional.relu(self.fc6(x), inplace=True))
        x = self.dropout(functional.relu(self.fc7(x), inplace=True))
        return linear_fp32(self.fc8, x)
