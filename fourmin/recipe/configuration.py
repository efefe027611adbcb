"""The whole configuration of a run: one frozen dataclass, to and from JSON, with its digest.

Whatever can change the outcome of a run is a field here, whoever set it (the preset, a
command-line option, `--set`), so that it reaches campaign.json, the event log and result.json.
Paths are not: where the data lies does not change the outcome, what it holds does, and that is
the manifest's digest. After a change of fields, `make docs` writes what is made from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fourmin.base.canonical import canonical_bytes, sha256_hex
from fourmin.base.errors import unknown
from fourmin.base.mishaps import told
from fourmin.recipe.algorithms import AlgorithmFields, is_asynchronous
from fourmin.recipe.allreduces import LARGE, NAMES
from fourmin.recipe.combinations import check_combinations
from fourmin.recipe.fields import AUTO, Field, fields_of, later
from fourmin.recipe.machine import resolved, usual_decoder
from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.recipe.phases import MOST_EPOCHS, in_epoch, parse_points, stretches


@dataclass(frozen=True, kw_only=True)
class Configuration(AlgorithmFields):
    """Everything that decides the outcome of a run. Epochs count from 1, steps from 0."""

    # What is measured.
    preset: Annotated[str, Field("The preset that was begun with.")]
    benchmark: Annotated[str, Field("Data, quality target and evaluation schedule, by name.")]
    model: Annotated[str, Field("The network, by name.")]
    division: Annotated[
        str, Field("Whether the benchmark's limits are kept.", choices=("closed", "open"))
    ] = "closed"

    # Workers and batch.
    nodes: Annotated[int, Field("Nodes that train together.", minimum=1)] = 1
    procs_per_node: Annotated[int, Field("Worker processes on each node.", minimum=1)]
    global_batch_size: Annotated[
        int, Field("What all workers together take in a step.", unit="images", minimum=1)
    ]
    gradient_accumulation_steps: Annotated[
        int, Field("Passes whose gradients are added up for one step.", minimum=1)
    ] = 1

    # Optimizer and schedule. Learning rates are those of the global batch.
    optimizer: Annotated[str, Field("What updates the weights.", choices=tuple(OPTIMIZERS))]
    base_learning_rate: Annotated[float, Field("Learning rate after the warmup.", minimum=0)]
    end_learning_rate: Annotated[
        float, Field("Learning rate where the polynomial decay ends.", minimum=0)
    ] = 1e-4
    learning_rate_decay: Annotated[
        str,
        Field(
            "How it falls after the warmup; points: learning_rate_points alone say it.",
            choices=("poly", "step", "constant", "points"),
        ),
    ] = "poly"
    decay_poly_power: Annotated[float, Field("Power of the polynomial decay.", minimum=0)] = 2.0
    decay_epochs: Annotated[
        float, Field("Where the polynomial decay ends, warmup included.", unit="epochs", above=0)
    ]
    decay_milestones: Annotated[
        tuple[float, ...], Field("Where the step decay takes effect.", unit="epochs")
    ] = ()
    decay_factor: Annotated[
        float, Field("What the step decay multiplies the learning rate by at each milestone.")
    ] = 0.1
    largest_batch: Annotated[
        int,
        later(
            "Up to which the step decay multiplies the batch instead; 0: never.",
            unit="images",
            minimum=0,
        ),
    ] = 0
    learning_rate_points: Annotated[
        tuple[str, ...],
        later(
            "EPOCHS:RATE, joined by straight lines; two of one place are a jump.",
            pattern=r"^[0-9.]{1,16}:[0-9.e-]{1,24}$(?!\n)",
        ),
    ] = ()
    phases: Annotated[
        tuple[str, ...],
        later(
            "EPOCHS:FIELD=VALUE,...: fields of batches and images that change after so many.",
            pattern=r"^[0-9]{1,6}:[a-z_]+=[a-z0-9.]+(,[a-z_]+=[a-z0-9.]+)*$(?!\n)",
        ),
    ] = ()
    warmup_epochs: Annotated[float, Field("Length of the warmup.", unit="epochs", minimum=0)] = 0.0
    warmup_start_learning_rate: Annotated[
        float, Field("Learning rate of the warmup's first step.", minimum=0)
    ] = 0.0
    warmup_shape: Annotated[
        str, Field("How the warmup rises.", choices=("linear", "quadratic"))
    ] = "linear"
    momentum: Annotated[
        float, Field("Share of the last update in the next.", minimum=0, maximum=1)
    ] = 0.9
    nesterov: Annotated[bool, Field("Whether momentum is Nesterov's.")] = False
    weight_decay: Annotated[
        float, Field("Share of the weights that is added to their gradients.", minimum=0)
    ]
    lars_eta: Annotated[float, Field("LARS: the trust coefficient.", minimum=0)] = 0.001
    lars_epsilon: Annotated[
        float, Field("LARS: what is added to the denominator of the local rate.", minimum=0)
    ] = 0.0
    lars_clip: Annotated[
        bool, Field("LARS: whether no local rate exceeds the learning rate (LARC's clip mode).")
    ] = False
    adam_beta1: Annotated[
        float,
        later("LAMB, AdamW: share of the last mean gradient in the next.", minimum=0, below=1),
    ] = 0.9
    adam_beta2: Annotated[
        float,
        later(
            "LAMB, AdamW: share of the last mean squared gradient in the next.", minimum=0, below=1
        ),
    ] = 0.999
    adam_epsilon: Annotated[
        float, later("LAMB, AdamW: what is added to the root of that square.", above=0)
    ] = 1e-6
    exclude_bias_and_bn: Annotated[
        bool,
        Field("Whether biases and batch normalization go without weight decay and adaptation."),
    ] = True
    label_smoothing: Annotated[
        float, Field("Share of each label that goes to all classes alike.", minimum=0, maximum=1)
    ] = 0.0
    max_epochs: Annotated[
        int,
        Field(
            "After how many a run ends without the target.",
            unit="epochs",
            minimum=1,
            maximum=MOST_EPOCHS,
        ),
    ]

    # Model.
    initialization: Annotated[
        str, Field("Distribution of the first weights.", choices=("he", "truncated-normal"))
    ] = "he"
    zero_last_gamma: Annotated[
        bool, Field("Whether the last gamma of each residual block begins at 0.")
    ] = False
    bn_momentum: Annotated[
        float, Field("Share of the newest batch in the running statistics.", minimum=0, maximum=1)
    ] = 0.1
    bn_epsilon: Annotated[
        float, Field("What batch normalization adds to the variance.", above=0)
    ] = 1e-5
    bn_span: Annotated[
        int, Field("How many share batch statistics.", unit="workers", minimum=1)
    ] = 1

    # Device and precision.
    device: Annotated[str, Field("What trains.", choices=("cpu", "cuda"))] = AUTO
    precision: Annotated[
        str, Field("Numbers of forward and backward passes.", choices=("fp32", "fp16", "bf16"))
    ] = AUTO
    loss_scale: Annotated[float, Field("The first factor of the loss, in fp16.", above=0)] = 65536.0
    loss_scale_growth_interval: Annotated[
        int,
        Field("How many without an overflow double the factor, in fp16.", unit="steps", minimum=1),
    ] = 2000

    # Gradient reduction.
    allreduce: Annotated[str, Field("How gradients are summed.", choices=NAMES)] = "native"
    group_size: Annotated[
        int,
        Field(
            "Workers in a group of the hierarchy; 0: those of a node.", unit="workers", minimum=0
        ),
    ] = 0
    fusion_threshold: Annotated[
        int, Field("Size in FP32 at which a gradient bucket is sent.", unit="bytes", minimum=0)
    ] = 4 << 20
    gradient_dtype: Annotated[
        str,
        later(
            "What gradients, which are kept in FP32, are sent as.", choices=("fp32", "fp16", "bf16")
        ),
    ] = "fp32"
    gradient_density: Annotated[
        float, later("DGC: share of gradients that is sent.", above=0, maximum=1)
    ] = 1.0
    density_warmup_epochs: Annotated[
        int, later("DGC: in which that share falls.", unit="epochs", minimum=0, maximum=1000)
    ] = 0
    gradient_clip: Annotated[
        float, later("DGC: a weight's gradient is clipped to this norm; 0: never.", minimum=0)
    ] = 0.0
    hybrid_threshold: Annotated[
        int,
        Field(
            "Size from which hybrid takes its large side; auto: by a table or a cost model.",
            unit="bytes",
            minimum=0,
            auto=True,
        ),
    ] = 1 << 20
    hybrid_large: Annotated[str, later("What hybrid takes for large tensors.", choices=LARGE)] = (
        "ring"
    )
    tuning: Annotated[
        tuple[str, ...],
        later(
            "The table of allreduce=tuned: BYTES:ALGORITHM, from which size on which.",
            pattern=r"^[0-9]{1,16}:[a-z][a-z-]{0,50}$(?!\n)",
        ),
    ] = ()
    collective_timeout_seconds: Annotated[
        float, Field("How long a collective may last before the run fails.", unit="s", above=0)
    ] = 60.0

    # Input.
    loader: Annotated[
        str, Field("What reads and transforms images.", choices=("dali", "torchvision"))
    ] = "dali"
    loader_threads: Annotated[int, Field("The loader's threads in each worker.", minimum=1)] = 1
    decoder: Annotated[
        str,
        later("Where DALI decodes images (mixed: with the GPU's help).", choices=("cpu", "mixed")),
    ] = AUTO
    decoded_cache: Annotated[
        int,
        later(
            "Decoded images that each worker keeps in the host's memory, at most.",
            unit="MiB",
            minimum=0,
        ),
    ] = 0
    image_size: Annotated[int, Field("Height and width of an image.", unit="pixels", minimum=1)]
    eval_resize: Annotated[
        int,
        Field(
            "An evaluation image's shorter side, before its middle is cut.",
            unit="pixels",
            minimum=1,
        ),
    ]
    augmentation: Annotated[
        str,
        Field(
            "How training images are varied.",
            choices=("shift", "pad-crop", "random-resized-crop", "none"),
        ),
    ] = "random-resized-crop"
    crop_area: Annotated[
        float, later("Least share of an image that random-resized-crop takes.", above=0, maximum=1)
    ] = 0.08
    eval_rectangles: Annotated[
        bool, later("Whether a batch of evaluation images keeps their mean ratio of sides.")
    ] = False
    pixel_mean: Annotated[
        tuple[float, ...], Field("Subtracted from red, green and blue.", unit="of 255", items=3)
    ]
    pixel_std: Annotated[
        tuple[float, ...],
        Field("What red, green and blue are divided by.", unit="of 255", items=3, above=0),
    ]

    # Evaluation schedule and execution.
    eval_offset: Annotated[
        int, Field("Shift of the evaluations within their interval.", unit="epochs", minimum=0)
    ] = 0
    checkpoints: Annotated[
        bool, later("Whether each evaluation is followed by a checkpoint beside training.")
    ] = True
    threads: Annotated[int, Field("Threads of a worker's arithmetic on the CPU.", minimum=1)] = 1
    recompute: Annotated[
        bool, later("Whether each residual block runs again in the backward pass, for memory.")
    ] = False
    step: Annotated[
        str, Field("PyTorch's training step, or fused kernels on a GPU.", choices=("eager", "fast"))
    ] = AUTO
    deterministic: Annotated[
        bool, later("Whether the same devices give the same bits again, for an audit to replay.")
    ] = False
    max_steps: Annotated[
        int | None, Field("Stop after so many; only for practice.", unit="steps", minimum=1)
    ] = None

    at = in_epoch
    stretches = stretches
    resolved = resolved

    @property
    def workers(self) -> int:
        """Number of worker processes over all nodes."""
        return self.nodes * self.procs_per_node

    @property
    def local_batch_size(self) -> int:
        """Images that one worker takes through one forward and backward pass."""
        sharing = 1 if is_asynchronous(self) else self.workers
        return self.global_batch_size // (sharing * self.gradient_accumulation_steps)

    def steps_per_epoch(self, train_samples: int) -> int:
        """Full global batches in one epoch; the last incomplete one is dropped."""
        return train_samples // self.global_batch_size

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in field order."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name in FIELDS
            for value in [getattr(self, name)]
        }

    def digest(self) -> str:
        """Hex SHA-256 of the canonical JSON of every field."""
        return sha256_hex(canonical_bytes(self.to_json()))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Configuration:
        """The configuration that `to_json` wrote.

        Raises FourminError when a field is missing, unknown or of another type, or where phases
        or points of the learning rate are none.
        """
        values = {name: _known(name).coerce(value) for name, value in sorted(data.items())}
        if values.get("device") in FIELDS["device"].choices:
            # Campaigns of before this field were registered with what was the only way then.
            values.setdefault("decoder", usual_decoder(values["device"], values.get("loader", "")))
        with told("incomplete configuration", kind=TypeError):
            made = cls(**values)
        made.stretches()
        if made.learning_rate_decay == "points":
            parse_points(made.learning_rate_points)
        return made

    def with_overrides(self, changes: Mapping[str, Any]) -> Configuration:
        """A copy with some fields replaced; checks names and types, not the combination."""
        return dataclasses.replace(
            self, **{name: _known(name).coerce(value) for name, value in changes.items()}
        )

    def check(self) -> None:
        """Refuse what can never run, before anything is registered.

        Raises FourminError that names the field, the reason and the values that would do.
        """
        for name, field in FIELDS.items():
            field.check(getattr(self, name))
        check_combinations(self)


FIELDS = fields_of(Configuration)
"""What is known of each field, by name, in their order."""


def _known(name: str) -> Field:
    if name not in FIELDS:
        raise unknown(f"unknown configuration key {name!r}", name, FIELDS)
    return FIELDS[name]
