"""What `benchmarks/kernels.py` counts, against the models' own formulas."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from benchmark_scripts import BENCHMARKS, load_script

from fourmin.training.models import forward_flops

pytest.importorskip("triton", reason="Triton is not installed")

BY_CUDNN = "convolutions by cuDNN, with statistics"
COUNT = """
import json, kernels
count = kernels.count_step("resnet50-64k", 4, "fp16")
print(json.dumps({kind: count.total(kind) for kind in count.launches}))
print(count.bound("end of a block, forward", 1e12, 1e15))
"""


def test_a_step_computes_three_forward_passes() -> None:
    """All but the classifier, and the stem's data gradient: within 3% of three forward passes.

    The folded stem multiplies by some zeros: 256 products for 147.
    """
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(BENCHMARKS), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    totals = json.loads(first)
    operations = sum(done for _, done in totals.values())
    assert operations == pytest.approx(4 * 3 * forward_flops("resnet50", 224, 1000), rel=0.03)
    # 16 ends of blocks: two activations read, one written, and a bit an element.
    ends = 56 * 56 * 256 * 3 + 28 * 28 * 512 * 4 + 14 * 14 * 1024 * 6 + 7 * 7 * 2048 * 3
    moved, _ = totals["end of a block, forward"]
    assert moved == pytest.approx(4 * ends * (3 * 2 + 1 / 8), rel=1e-2)
    assert float(second) == pytest.approx(moved / 1e12)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gradient_relu", "normalization, backward"),
        ("statistics", "sums of normalization, forward"),
        ("forward_statistics", "convolutions by Triton, with statistics"),
        (
            "sm90_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc",
            "convolutions by cuDNN, with statistics",
        ),
        (
            "nvjet_sm90_hsh_128x128_64x6_2x1_v_bz_splitK_NTT",
            "convolutions by cuDNN, with statistics",
        ),
        ("Memset (Unknown)", "rest"),
    ],
)
def test_kinds_by_name(name: str, kind: str) -> None:
    assert load_script("kernels").kind_of(name) == kind
