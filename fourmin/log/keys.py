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
SUBMISSION_PLATFORM = "submission_platform"
SUBMISSION_DIVISION = "submission_division"
SUBMISSION_STATUS = "submission_status"
SUBMISSION_BENCHMARK = "submission_benchmark"
SUBMISSION_POC_NAME = "submission_poc_name"
SUBMISSION_POC_EMAIL = "submission_poc_email"
SUBMISSION_KEYS = (
    SUBMISSION_ORG,
    SUBMISSION_PLATFORM,
    SUBMISSION_DIVISION,
    SUBMISSION_STATUS,
    SUBMISSION_BENCHMARK,
)

# The run and its intervals.
CACHE_CLEAR = "cache_clear"
INIT_START = "init_start"
INIT_STOP = "init_stop"
RUN_START = "run_start"
RUN_STOP = "run_stop"
STAGING_START = "staging_start"
STAGING_STOP = "staging_stop"
EPOCH_START = "epoch_start"
EPOCH_STOP = "epoch_stop"
BLOCK_START = "block_start"
BLOCK_STOP = "block_stop"
EVAL_START = "eval_start"
EVAL_STOP = "eval_stop"
EVAL_ACCURACY = "eval_accuracy"
TRACKED_STATS = "tracked_stats"
THROUGHPUT = "throughput"
WEIGHTS_INITIALIZATION = "weights_initialization"
SEED = "seed"

# Power measurement.
POWER_READING = "power_reading"
POWER_MEASUREMENT_START = "power_measurement_start"
POWER_MEASUREMENT_STOP = "power_measurement_stop"

# Data and batch.
TRAIN_SAMPLES = "train_samples"
EVAL_SAMPLES = "eval_samples"
GLOBAL_BATCH_SIZE = "global_batch_size"
GRADIENT_ACCUMULATION_STEPS = "gradient_accumulation_steps"
MODEL_BN_SPAN = "model_bn_span"

# Optimizer.
OPT_NAME = "opt_name"
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
SYSTEM = "system"
SOFTWARE = "software"
PACKAGE_DIGEST = "package_digest"
CAMPAIGN = "campaign"
DATASET = "dataset"
INITIAL_WEIGHTS_DIGEST = "initial_weights_digest"
DATA_ORDER_DIGEST = "data_order_digest"
WEIGHTS_DIGEST = "weights_digest"
STEP_LOSS = "step_loss"
LOGGED_STEPS = 8
"""Steps at the start of a run whose losses are logged one by one, for replays."""
COMMUNICATION = "communication"
CLOCKS = "clocks"
ENERGY = "energy"
CHECKPOINT = "checkpoint"
RUN_RESTART = "run_restart"
ABORT = "abort"
FOURMIN_KEYS = (
    CONFIGURATION,
    SYSTEM,
    SOFTWARE,
    PACKAGE_DIGEST,
    CAMPAIGN,
    DATASET,
    INITIAL_WEIGHTS_DIGEST,
    DATA_ORDER_DIGEST,
    WEIGHTS_DIGEST,
    STEP_LOSS,
    COMMUNICATION,
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
