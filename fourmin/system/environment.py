"""The environment that can change a run, by an allow-list, so that no token leaks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

ALLOWED_PREFIXES = (
    "NCCL_",
    "CUDA_",
    "CUDNN_",
    "CUBLAS_",
    "NVIDIA_TF32_",
    "TORCH_",
    "PYTORCH_",
    "DALI_",
    "OMP_",
    "MKL_",
    "GLOO_",
    "MALLOC_",
    "GLIBC_",
    "FOURMIN_",
)
ALLOWED_SLURM = (
    "SLURM_NNODES",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS_PER_NODE",
    "SLURM_DISTRIBUTION",
    "SLURM_CPU_BIND_TYPE",
    "SLURM_MEM_PER_NODE",
)
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL", "JOB")
_NAMING_WORDS = ("HOST", "ADDR", "IFNAME", "FILE", "PATH", "HOME", "DIR")

DEVICE_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
"""The default for processes that train on a GPU, under what the user has set.

CUDA spreads all streams of a process over 8 hardware queues, in each of which work waits for work
of other streams that came before. DALI's decoder alone has more streams than that, and training
waited behind its copies: fed, the fast step ran at 0.71 of its rate, and with 32 queues at 0.96.
"""


def captured_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Allow-listed variables, without those whose names say that they hold secrets or places."""
    variables = os.environ if environment is None else environment
    return {
        name: value
        for name, value in sorted(variables.items())
        if (name.startswith(ALLOWED_PREFIXES) or name in ALLOWED_SLURM)
        and not any(word in name.upper() for word in (*_SECRET_WORDS, *_NAMING_WORDS))
    }


def interpreter_changes(environment: Mapping[str, str] | None = None) -> list[str]:
    """What may have changed the harness from outside: to be disclosed, whatever it holds."""
    variables = os.environ if environment is None else environment
    changes = [
        name
        for name in ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "LD_PRELOAD", "LD_AUDIT")
        if variables.get(name)
    ]
    changes.extend(name for name in ("sitecustomize", "usercustomize") if name in sys.modules)
    return changes
