"""Fields that do not go together, though each has a value of its own range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourmin.base.errors import FourminError
from fourmin.recipe.algorithms import check_algorithm
from fourmin.recipe.allreduces import ALL_REDUCES, MOST_IN_RING, needs, parse_entries
from fourmin.recipe.fields import AUTO
from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.recipe.phases import check_image_sizes, growths, parse_points
from fourmin.recipe.steps import against_training
from fourmin.recipe.topology import check_group_size

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


MOST_LOOKED_AT = 1 << 20
"""Numbers that are tried for a hint: somebody else's configuration may hold any."""


def check_combinations(config: Configuration) -> None:
    """Raise FourminError for the first two that do not, with values that would."""
    for check in _CHECKS:
        check(config)


def _optimizer(config: Configuration) -> None:
    OPTIMIZERS[config.optimizer].check(config)


def _fast_step(config: Configuration) -> None:
    if config.step == "fast" and (against := against_training(config)):
        raise FourminError("step=fast cannot train this", against, "--set step=eager")


def _precision(config: Configuration) -> None:
    if config.device == "cpu" and config.precision == "fp16":
        raise FourminError(
            "fp16 needs a GPU",
            "the CPU has no fast half-precision arithmetic with loss scaling",
            "--precision bf16 or fp32",
        )


def _decoder(config: Configuration) -> None:
    if config.decoder == "mixed" and (config.device == "cpu" or config.loader != "dali"):
        raise FourminError(
            "decoder=mixed is DALI's on a GPU",
            f"this run uses the loader {config.loader} on {config.device}",
            "--set decoder=cpu",
        )


def _decoded_cache(config: Configuration) -> None:
    if config.decoder == "mixed" and config.decoded_cache:
        raise FourminError(
            "decoded_cache needs decoder=cpu",
            "what the GPU decodes (mixed) stays there, and the cache is in the host's memory",
            "--set decoder=cpu, or --set decoded_cache=0",
        )


def _gradient_dtype(config: Configuration) -> None:
    if config.gradient_dtype == "fp16" and config.precision != "fp16":
        raise FourminError(
            "gradients sent in fp16 need loss scaling",
            f"precision={config.precision} has none, so that small ones would become zero",
            "--precision fp16, or --set gradient_dtype=bf16",
        )


def _half_precision_ring(config: Configuration) -> None:
    entry = ALL_REDUCES[config.allreduce]
    taken = {name for _, name in entry.table(config)} if entry.table else {config.allreduce}
    if config.gradient_dtype != "fp16" or "ring" not in taken or config.workers <= MOST_IN_RING:
        return
    what = {"hybrid": "--set hybrid_large=torus", "tuned": "a table without ring"}
    raise FourminError(
        f"a flat ring of {config.workers} workers cannot sum gradients in fp16",
        f"it adds {config.workers} terms one after the other, and what is lost to rounding grows "
        f"with each; up to {MOST_IN_RING} were found to be good enough",
        f"{what.get(config.allreduce, '--allreduce torus')}, or --set gradient_dtype=fp32",
    )


def _groups(config: Configuration) -> None:
    check_group_size(config.group_size, config.workers, config.procs_per_node)


def _tuning(config: Configuration) -> None:
    if config.tuning:
        parse_entries(config.tuning)
    elif needs(config.allreduce, "tuning"):
        raise FourminError(
            f"allreduce={config.allreduce} needs a table",
            "it takes the algorithm that a measurement found fastest for each size",
            "`fourmin bench allreduce --output FILE`, then --tuning FILE",
        )


def _bn_span(config: Configuration) -> None:
    if config.workers % config.bn_span == 0:
        return
    most = min(config.workers, MOST_LOOKED_AT)
    fits = [str(span) for span in range(1, most + 1) if config.workers % span == 0]
    raise FourminError(
        f"bn_span={config.bn_span} does not fit {config.workers} workers",
        "every group of workers that shares batch statistics must have the same size",
        f"--set bn_span=N with N one of {', '.join(fits)}",
    )


def _batch(config: Configuration) -> None:
    parts = config.workers * config.gradient_accumulation_steps
    if config.global_batch_size % parts == 0:
        return
    fits = [
        workers
        for workers in range(1, min(config.global_batch_size, MOST_LOOKED_AT) + 1)
        if config.global_batch_size % (workers * config.gradient_accumulation_steps) == 0
    ]
    nearest = sorted(sorted(fits, key=lambda w: (abs(w - config.workers), w))[:6])
    lower = config.global_batch_size // parts * parts
    batches = " or ".join(str(batch) for batch in (lower, lower + parts) if batch > 0)
    accumulation = (
        f" in {config.gradient_accumulation_steps} accumulation steps"
        if config.gradient_accumulation_steps > 1
        else ""
    )
    raise FourminError(
        f"a global batch of {config.global_batch_size} images cannot be shared equally by "
        f"{config.workers} workers{accumulation}",
        "every worker takes the same number of images in each forward pass",
        (f"worker counts that fit: {', '.join(map(str, nearest))}; or " if nearest else "")
        + f"--set global_batch_size={batches}",
    )


def _phases(config: Configuration) -> None:
    """Each phase, as a configuration by itself."""
    phases = config.stretches()
    for first, own in phases[1:]:
        own.check()
        if first > config.max_epochs:
            raise FourminError(
                f"a phase begins after {first - 1} epochs, and the run has {config.max_epochs}",
                next_step="leave it out",
            )
    if config.largest_batch and config.learning_rate_decay != "step":
        raise FourminError(
            "largest_batch is for learning_rate_decay=step",
            "at its milestones the batch grows instead of the rate falling",
            "--set largest_batch=0",
        )
    if growths(config) and any("global_batch_size=" in text for text in config.phases):
        raise FourminError(
            "the batch grows by largest_batch or by phases, not by both",
            next_step="--set largest_batch=0, or leave global_batch_size out of phases",
        )
    if config.model == "alexnet" and len({own.image_size for _, own in phases}) > 1:
        raise FourminError(
            "AlexNet takes images of one size",
            "its first fully connected layer has a weight for each position",
            "leave image_size out of phases",
        )
    if config.learning_rate_decay == "points":
        parse_points(config.learning_rate_points)
        if config.warmup_epochs:
            raise FourminError(
                "learning_rate_points say how the rate begins, too",
                f"warmup_epochs is {config.warmup_epochs}",
                "--set warmup_epochs=0",
            )


def _compression(config: Configuration) -> None:
    whole = config.gradient_density == 1
    for name in ("density_warmup_epochs", "gradient_clip"):
        if whole and getattr(config, name):
            raise FourminError(
                f"{name} is for gradients that are sent in part",
                "gradient_density is 1",
                f"--set gradient_density=0.001, or --set {name}=0",
            )
    for name, wanted, why in _OF_COMPRESSED:
        if not whole and getattr(config, name) not in wanted:
            raise FourminError(
                f"gradient_density={config.gradient_density} is not for "
                f"{name}={getattr(config, name)}",
                why,
                f"--set {name}={str(wanted[0]).lower()}, or --set gradient_density=1",
            )


_OF_COMPRESSED = (
    ("optimizer", ("sgd",), "what is kept back is a sum of SGD's momenta"),
    ("precision", ("bf16", "fp32", AUTO), "FP16's loss scale changes, and with it what is kept"),
    ("gradient_dtype", ("fp32",), "values are sent as they are kept"),
    ("deterministic", (False,), "a state that is hashed has no place for what each worker keeps"),
)


def _recompute(config: Configuration) -> None:
    if config.recompute and config.model == "alexnet":
        raise FourminError(
            "AlexNet has no residual blocks to recompute",
            "its activations are small beside its weights",
            "--set recompute=false",
        )


def _image_sizes(config: Configuration) -> None:
    check_image_sizes(config.image_size, config.eval_resize)


_CHECKS = (
    _optimizer,
    check_algorithm,
    _fast_step,
    _precision,
    _decoder,
    _decoded_cache,
    _gradient_dtype,
    _batch,
    _bn_span,
    _groups,
    _tuning,
    _half_precision_ring,
    _image_sizes,
    _recompute,
    _compression,
    _phases,
)
