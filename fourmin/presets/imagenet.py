"""What the ImageNet presets share."""

from __future__ import annotations

TRAIN_IMAGES = 1_281_167
"""Training images of ILSVRC-2012, which turn published steps into epochs."""
