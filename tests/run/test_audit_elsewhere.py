"""What an audit replays of a run of GPUs on a machine that has none."""

from __future__ import annotations

import dataclasses

from fourmin.audit import _replayable
from fourmin.config import Configuration
from fourmin.presets import load_preset


def test_a_run_of_the_fast_step_on_gpus_is_replayed_on_the_cpu() -> None:
    claimed = dataclasses.replace(
        load_preset("tiny-imagenet"),
        device="cuda", precision="fp16", decoder="mixed", step="fast", nodes=1, procs_per_node=1,
    )  # fmt: skip
    here = _replayable(claimed, gpus=0)
    assert (here.device, here.precision, here.decoder, here.step) == ("cpu", "fp32", "cpu", "eager")
    # It is one that can run, and the same training.
    assert Configuration.from_json(here.to_json()) == here
    assert here.global_batch_size == claimed.global_batch_size
    on_a_gpu = _replayable(claimed, gpus=1)
    assert (on_a_gpu.device, on_a_gpu.decoder, on_a_gpu.step) == ("cuda", "mixed", "fast")
