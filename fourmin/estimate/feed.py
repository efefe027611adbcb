"""What a step's images ask of storage and decoders, and what limits the run.

Reading, decoding and training go on at the same time: a step takes as long as the slowest. Every
image is taken to come from storage in every epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from fourmin.estimate.profile import Profile
from fourmin.estimate.step import Step

IMAGE_BYTES = {"imagenet": 147_897_477_120 / 1_281_167}
"""Mean bytes of an image by dataset: of ImageNet those of ILSVRC2012_img_train.tar."""


@dataclass(frozen=True)
class Feed:
    """Seconds that a step's images take to read and to decode; None where the profile does not say
    how fast that goes. `bytes_per_second` is what all nodes read at the step's own rate; None for
    a dataset whose bytes nobody counted.
    """

    bytes_per_second: float | None
    reading: float | None
    decoding: float | None

    def seconds(self, step: Step) -> float:
        """Of a step that waits for its images."""
        return max(step.time.seconds, self.reading or 0.0, self.decoding or 0.0)

    def limit(self, step: Step) -> str:
        """What the step takes most of its time for."""
        time, seconds = step.time, self.seconds(step)
        if seconds > time.seconds:
            return "reading" if self.reading == seconds else "decoding"
        return "compute" if 2 * time.compute >= time.seconds else "communication"


def feed(step: Step, nodes: int, dataset: str, profile: Profile) -> Feed:
    """What `nodes` nodes of a profile need for a step on images of `dataset`."""
    images = step.images_per_second * step.time.seconds
    image_bytes = profile.image_bytes or IMAGE_BYTES.get(dataset)
    if image_bytes is None:  # what is known of decoders was measured on larger images
        return Feed(None, None, None)
    storage, decoders = profile.storage_bandwidth, profile.decode_rate
    return Feed(
        image_bytes * step.images_per_second,
        images * image_bytes / (nodes * storage) if storage else None,
        images / (step.workers * decoders) if decoders else None,
    )
