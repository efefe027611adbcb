"""Any bytes and any folder give findings, never an exception, in time linear in their size.

`FOURMIN_FUZZ_INPUTS` sets how many inputs each of the two mutating tests takes; `make fuzz` sets
it high. A failure prints the seed of its input.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from fuzzing import TABLE, mutate, read_everything, seeds, write_hostile_tree
from speed import SECOND, effort

from fourmin.base.errors import FourminError
from fourmin.report import FORMATS as REPORT_FORMATS
from fourmin.report import load_renderer
from fourmin.report.collect import collect
from fourmin.results.importers.dawnbench import read_table
from fourmin.rules.engine import check
from fourmin.rules.foreign.check import check_foreign
from fourmin.rules.render import FORMATS

pytestmark = pytest.mark.untraced

INPUTS = int(os.environ.get("FOURMIN_FUZZ_INPUTS", "1500"))
FIRST_SEED = int(os.environ.get("FOURMIN_FUZZ_SEED", "0"))
MEBIBYTE = 1024 * 1024


def judge(found: object) -> None:
    for finding in check_foreign(found):  # type: ignore[arg-type]
        assert "could not be applied" not in finding.message, finding


@pytest.mark.timeout(36_000)
def test_mutated_logs_and_tables() -> None:
    starts = seeds()
    for seed in range(FIRST_SEED, FIRST_SEED + INPUTS):
        generator = random.Random(seed)
        data = mutate(generator.choice(starts), generator)
        try:
            read_everything(data, judge)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.timeout(36_000)
def test_hostile_folders(tmp_path: Path) -> None:
    files = [*seeds(), b'{"schema_version": 1, "runs": 5, "ruleset": "1.0"}', b"{}"]
    for seed in range(FIRST_SEED, FIRST_SEED + min(2000, max(10, INPUTS // 50))):
        root = tmp_path / str(seed)
        root.mkdir()
        write_hostile_tree(root, random.Random(seed), files)
        try:
            report = check([root])
            assert all("could not be applied" not in f.message for f in report.findings)
            for render in FORMATS.values():
                "\n".join(render(report)).encode()
            comparison = collect([root])
            for name in REPORT_FORMATS:
                load_renderer(name)(comparison).encode()
        except FourminError:
            continue  # nothing to check there
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=2000))
def test_any_bytes(data: bytes) -> None:
    read_everything(data, judge)
    read_everything(b":::MLLOG " + data, judge)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
_KEYS = (
    "run_start", "run_stop", "eval_accuracy", "epoch_start", "epoch_stop", "block_start",
    "block_stop", "init_start", "init_stop", "global_batch_size", "opt_name", "lars_opt_momentum",
    "lars_opt_weight_decay", "submission_division", "submission_benchmark", "seed", "cache_clear",
    "train_samples", "weights_initialization",
)  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "namespace": st.just("") | _JSON,
                "time_ms": st.integers(0, 2**54) | _JSON,
                "event_type": st.just("POINT_IN_TIME") | _JSON,
                "key": st.sampled_from(_KEYS) | _JSON,
                "value": _JSON,
                "metadata": _JSON | st.dictionaries(st.sampled_from(
                    ("epoch_num", "first_epoch_num", "epoch_count", "status", "tensor")
                ), _JSON),
            }
        ),
        max_size=12,
    )
)  # fmt: skip
def test_records_of_the_right_form_with_any_values(records: list[object]) -> None:
    import json

    text = "".join(f":::MLLOG {json.dumps(record)}\n" for record in records)
    read_everything(text.encode("utf-8", "surrogatepass"), judge)


def _filled(unit: bytes) -> bytes:
    return (unit * (MEBIBYTE // len(unit) + 1))[:MEBIBYTE]


ACCURACY = (
    b':::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "POINT_IN_TIME", '
    b'"key": "eval_accuracy", "value": 0.7, "metadata": {"epoch_num": 1}}\n'
)
LARGE = {
    "tokens": _filled(b":::MLLOG {"),
    "open braces": _filled(b":::MLLOG " + b'{"a":' * 300 + b"\n"),
    "quotes": _filled(b':::MLLOG {"key": "' + b":::MLLOG {" * 50 + b'"\n'),
    "evaluations": _filled(ACCURACY),
    "decreasing times": b"".join(
        ACCURACY.replace(b"1700000000000", b"%d" % (1700000000000 - i)) for i in range(6500)
    ),
    "starts": _filled(ACCURACY.replace(b"eval_accuracy", b"eval_start")),
    "stops": _filled(ACCURACY.replace(b"eval_accuracy", b"epoch_stop")),
    "seeds": b"".join(
        ACCURACY.replace(b"eval_accuracy", b"seed").replace(b"0.7", b"%d" % i) for i in range(6500)
    ),
    "one line": _filled(ACCURACY.rstrip()),
    "no newline": _filled(b"x"),
    "surrogates": _filled(b':::MLLOG {"key": "\\ud800"}\n'),
    "bytes": _filled(b"\xff\xfe\x00"),
    "numbers": _filled(b":::MLLOG [" + b"9" * 1000 + b"]\n"),
    "v0.5": _filled(b":::MLPv0.5.0 resnet 1.5 (a:1) eval_accuracy: {\n"),
    "v0.6": _filled(b":::MLL 1.5 run_start: {\n"),
    "carriage returns": _filled(b"\r"),
    "table": TABLE + _filled(b"1\t1\t1\t1\n"),
    "tabs": TABLE + _filled(b"\t"),
}


@pytest.mark.parametrize("name", sorted(LARGE))
def test_a_file_of_a_mebibyte_takes_less_than_a_second(name: str, tmp_path: Path) -> None:
    (tmp_path / "result_1.txt").write_bytes(ACCURACY)
    check([tmp_path])  # what is loaded and compiled once is no part of the file's time
    (tmp_path / "result_0.txt").write_bytes(LARGE[name])
    assert effort(lambda: (check([tmp_path]), read_table(LARGE[name])), SECOND) <= SECOND
