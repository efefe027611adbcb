"""Keys of the event log: MLPerf's, and this project's own under the namespace `fourmin`."""

from __future__ import annotations

FOURMIN_NAMESPACE = "fourmin"
"""Namespace of the keys that MLPerf does not know."""

# Event types.
INTERVAL_START = "INTERVAL_START"
INTERVAL_END = "INTERVAL_END"
POINT_IN_TIME = "POINT_IN_TIME"
EVENT_TYPES = (INTERVAL_START, INTERVAL_END, POINT_IN_TIME)

# Submission.
SUBMISSION_ORG = "submission_org"
"""The submitter."""
SUBMISSION_PLATFORM = "submission_platform"
"""The system's name."""
SUBMISSION_DIVISION = "submission_division"
"""closed or open."""
SUBMISSION_STATUS = "submission_status"
"""MLPerf's availability of the system; here always onprem."""
SUBMISSION_BENCHMARK = "submission_benchmark"
"""The benchmark's name."""
SUBMISSION_KEYS = (
    SUBMISSION_ORG,
    SUBMISSION_PLATFORM,
    SUBMISSION_DIVISION,
    SUBMISSION_STATUS,
    SUBMISSION_BENCHMARK,
)

# The run and its intervals.
CACHE_CLEAR = "cache_clear"
"""Whether the page cache was emptied before the run, as it really was."""
INIT_START = "init_start"
"""The worker begins to build model, optimizer and step."""
INIT_STOP = "init_stop"
"""All that needs no data is done, and all ranks are there."""
RUN_START = "run_start"
"""The clock starts; no image has been read. Metadata `boot` tells boots of a machine apart."""
RUN_STOP = "run_stop"
"""The clock stops. Metadata `status`: success where the target was reached, else aborted."""
STAGING_START = "staging_start"
"""The images are being copied to the nodes, on the clock."""
STAGING_STOP = "staging_stop"
"""They are there."""
EPOCH_START = "epoch_start"
"""An epoch of training begins; metadata `epoch_num` counts from 1."""
EPOCH_STOP = "epoch_stop"
"""It has ended; metadata `samples_count` is the images trained on."""
BLOCK_START = "block_start"
"""Read in other people's logs: several epochs up to an evaluation."""
BLOCK_STOP = "block_stop"
"""Read in other people's logs."""
EVAL_START = "eval_start"
"""An evaluation of the whole validation set begins."""
EVAL_STOP = "eval_stop"
"""It has ended."""
EVAL_ACCURACY = "eval_accuracy"
"""Top-1 accuracy, 0 to 1; metadata `samples_count` images, `correct_count` of them right."""
TRACKED_STATS = "tracked_stats"
"""After each epoch: images/s, mean of the finite losses, steps performed and skipped so far, loss
scale, the last step's learning rate, median exposed communication (ms)."""
WEIGHTS_INITIALIZATION = "weights_initialization"
"""Read in other people's logs only."""
SEED = "seed"
"""The run's assigned seed."""


# Data and batch.
TRAIN_SAMPLES = "train_samples"
"""Images in the training split."""
EVAL_SAMPLES = "eval_samples"
"""Images in the validation split."""
GLOBAL_BATCH_SIZE = "global_batch_size"
"""Images of one optimizer step, over all workers."""
GRADIENT_ACCUMULATION_STEPS = "gradient_accumulation_steps"
"""Passes whose gradients are added up for one step."""
MODEL_BN_SPAN = "model_bn_span"
"""Images over which batch-normalization statistics are taken."""

# Optimizer.
OPT_NAME = "opt_name"
"""The optimizer."""
OPT_BASE_LEARNING_RATE = "opt_base_learning_rate"
OPT_LEARNING_RATE_WARMUP_EPOCHS = "opt_learning_rate_warmup_epochs"
OPT_LEARNING_RATE_DECAY_BOUNDARY_EPOCHS = "opt_learning_rate_decay_boundary_epochs"
OPT_WEIGHT_DECAY = "opt_weight_decay"
OPT_END_LEARNING_RATE = "opt_end_learning_rate"
OPT_LEARNING_RATE_DECAY_STEPS = "opt_learning_rate_decay_steps"
OPT_ADAMW_BETA_1 = "opt_adamw_beta_1"
OPT_ADAMW_BETA_2 = "opt_adamw_beta_2"
OPT_ADAMW_EPSILON = "opt_adamw_epsilon"
OPT_ADAMW_WEIGHT_DECAY = "opt_adamw_weight_decay"
OPT_LAMB_BETA_1 = "opt_lamb_beta_1"
OPT_LAMB_BETA_2 = "opt_lamb_beta_2"
OPT_LAMB_EPSILON = "opt_lamb_epsilon"
OPT_LAMB_LEARNING_RATE_DECAY_POLY_POWER = "opt_lamb_learning_rate_decay_poly_power"
OPT_LAMB_LEARNING_RATE_MIN = "opt_lamb_learning_rate_min"
OPT_LAMB_WEIGHT_DECAY_RATE = "opt_lamb_weight_decay_rate"
LARS_EPSILON = "lars_epsilon"
LARS_OPT_BASE_LEARNING_RATE = "lars_opt_base_learning_rate"
LARS_OPT_END_LEARNING_RATE = "lars_opt_end_learning_rate"
LARS_OPT_LEARNING_RATE_DECAY_POLY_POWER = "lars_opt_learning_rate_decay_poly_power"
LARS_OPT_LEARNING_RATE_DECAY_STEPS = "lars_opt_learning_rate_decay_steps"
LARS_OPT_LEARNING_RATE_WARMUP_EPOCHS = "lars_opt_learning_rate_warmup_epochs"
LARS_OPT_MOMENTUM = "lars_opt_momentum"
LARS_OPT_WEIGHT_DECAY = "lars_opt_weight_decay"
SGD_OPT_BASE_LEARNING_RATE = "sgd_opt_base_learning_rate"
SGD_OPT_END_LEARNING_RATE = "sgd_opt_end_learning_rate"
SGD_OPT_LEARNING_RATE_DECAY_POLY_POWER = "sgd_opt_learning_rate_decay_poly_power"
SGD_OPT_LEARNING_RATE_DECAY_STEPS = "sgd_opt_learning_rate_decay_steps"
SGD_OPT_MOMENTUM = "sgd_opt_momentum"
SGD_OPT_WEIGHT_DECAY = "sgd_opt_weight_decay"

HYPERPARAMETERS = (
    GLOBAL_BATCH_SIZE,
    GRADIENT_ACCUMULATION_STEPS,
    MODEL_BN_SPAN,
    *(key for name, key in list(globals().items()) if name.startswith(("OPT_", "LARS_", "SGD_"))),
)
"""Keys whose value can change when a run converges: the batch's and the optimizers'."""

# Metadata.
FILE = "file"
LINENO = "lineno"
MONOTONIC_MS = "monotonic_ms"
EPOCH_NUM = "epoch_num"
FIRST_EPOCH_NUM = "first_epoch_num"
EPOCH_COUNT = "epoch_count"
STEP_NUM = "step_num"
SAMPLES_COUNT = "samples_count"
STATUS = "status"
TENSOR = "tensor"
BOOT = "boot"

# Values of `status`.
SUCCESS = "success"
ABORTED = "aborted"

# This project's own keys (namespace `fourmin`).
CONFIGURATION = "configuration"
"""Every field of the configuration (docs/configuration.md)."""
SYSTEM = "system"
"""Hardware, its limits, software and environment as captured, and the system digest."""
PACKAGE_DIGEST = "package_digest"
"""SHA-256 of fourmin's own sources and rules."""
CAMPAIGN = "campaign"
"""The campaign's digest, the run's number and attempt, whether it is practice, the ruleset."""
DATASET = "dataset"
"""Classes, images and digests of both splits."""
INITIAL_WEIGHTS_DIGEST = "initial_weights_digest"
"""SHA-256 of the weights before the first step; anyone can compute it from the seed."""
DATA_ORDER_DIGEST = "data_order_digest"
"""SHA-256 of the order in which images were consumed; metadata `samples_count` of them."""
WEIGHTS_DIGEST = "weights_digest"
"""SHA-256 of the weights that an evaluation is of."""
NUMERICS = "numerics"
"""Of a deterministic run: torch's instruction set of this processor, and the variables that fix the
order of sums. Devices and versions are in `system`."""
STATE = "state"
"""Of a deterministic run: SHA-256 of all that training is after the epoch in the metadata and of
whose it is (docs/security.md), SHA-256 of its tensors alone (equal in runs with equal bits), and
the losses of that epoch's first steps, for replays. That of epoch 0 anyone can compute from the
seed."""
STEP_LOSS = "step_loss"
"""The losses of the first steps, means over all workers; null where one is not finite. The first
is the loss of the initial weights."""
LOGGED_STEPS = 8
"""Steps at the start of a run whose losses are logged one by one, for replays."""
COMMUNICATION = "communication"
"""Algorithms and bytes of the buckets, exposed time and skew between ranks (ms, median and 95th
percentile)."""
STALENESS = "staleness"
"""Of an asynchronous algorithm: how many changes of the weights by other workers came between what
a change follows from and itself (mean, median, 95th percentile, most); workers that were lost, and
steps that were handed out again; all since the last restart."""
CLOCKS = "clocks"
"""Offsets of the nodes' clocks, and how far apart the ranks started and waited (ms)."""
ENERGY = "energy"
"""Joules of the accelerators and processors from run_start to run_stop, where they have meters."""
CHECKPOINT = "checkpoint"
"""A checkpoint after the epoch in the metadata is complete."""
RUN_RESTART = "run_restart"
"""Workers go on in this run after a failure: the restart's number, after which epoch."""
ABORT = "abort"
"""Why the run was ended; written by the command, before run_stop."""
FOURMIN_KEYS = (
    CONFIGURATION,
    SYSTEM,
    PACKAGE_DIGEST,
    CAMPAIGN,
    DATASET,
    INITIAL_WEIGHTS_DIGEST,
    DATA_ORDER_DIGEST,
    WEIGHTS_DIGEST,
    NUMERICS,
    STATE,
    STEP_LOSS,
    COMMUNICATION,
    STALENESS,
    CLOCKS,
    ENERGY,
    CHECKPOINT,
    RUN_RESTART,
    ABORT,
)

V05_ALIASES = {
    "train_epoch": EPOCH_START,
    "eval_size": EVAL_SAMPLES,
    "preproc_num_train_examples": TRAIN_SAMPLES,
    "preproc_num_eval_examples": EVAL_SAMPLES,
    "input_batch_size": GLOBAL_BATCH_SIZE,
    "opt_learning_rate": OPT_BASE_LEARNING_RATE,
    "run_set_random_seed": SEED,
    "run_clear_caches": CACHE_CLEAR,
}
"""MLPerf v0.5's names for what later rounds log under the name on the right."""

V06_ALIASES = {
    "num_train_examples": TRAIN_SAMPLES,
    "num_eval_examples": EVAL_SAMPLES,
}
"""The same for v0.6."""
