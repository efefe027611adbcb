"""What `fourmin bench allreduce` found, as nccl-tests' all_reduce_perf prints it.

Columns and widths are those of its src/util.cu, so that what reads its output reads this. `time` is
the median of samples, of the slowest rank, where all_reduce_perf gives the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fourmin.recipe.allreduces import OUT_OF_PLACE
from fourmin.results.statistics import mean

_TYPES = {"float32": ("float", 4), "float16": ("half", 2), "bfloat16": ("bfloat16", 2)}
_HEADING = """\
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \
"""  # noqa: E501, W291


def nccl_tests_lines(result: Mapping[str, Any]) -> list[str]:
    """The lines; after the table, as comments, the tail of each row that has enough samples."""
    rows = sorted(result["rows"], key=lambda row: (row["bytes"], row["algorithm"] != OUT_OF_PLACE))
    kind, width = _TYPES[result["dtype"]]
    lines = [
        f"# Collective test starting: all_reduce_perf (fourmin, {rows[1]['algorithm']})",
        f"# nThread 1 nGpus 1 minBytes {rows[0]['bytes']} maxBytes {rows[-1]['bytes']} "
        f"iters: {rows[0]['samples']} agg iters: 1 validation: 1 graph: 0",
        "#\n# Using devices",
        f"#  {result['workers']} ranks, {result['device']}, {result['backend']}, torch "
        f"{result['torch']}",
        "# out-of-place is a copy and a sum in place: torch has no other\n#",
        _HEADING,
    ]
    for out, inside in zip(rows[::2], rows[1::2], strict=True):
        count = max(1, out["bytes"] // width)
        start = f"{out['bytes']:>12}  {count:>12}  {kind:>8}  {'sum':>6}  {-1:>6}"
        lines.append(start + _body(out) + _body(inside))
    lines += [
        f"# {'Out of bounds values':<20} : 0 OK",
        f"# {'Avg bus bandwidth':<20} : {mean([row['bus_bandwidth'] for row in rows]):g} \n#",
    ]
    for row in rows:
        if row["p99"] is not None:
            tail = f"i_p99 {row['p99'] * 1e3:.2f} us, i_cv% {100 * row['cv']:.2f}"
            lines.append(f"# {row['bytes']} B, {row['algorithm']}, single calls: {tail}")
    return [*lines, "# Collective test concluded: all_reduce_perf"]


def _body(row: Mapping[str, Any]) -> str:
    return (
        f"  {figure(row['milliseconds'] * 1e3, 7)}  {figure(row['algorithm_bandwidth'], 6)}"
        f"  {figure(row['bus_bandwidth'], 6)}  {0 if row['correct'] else 1:>6}"
    )


def figure(value: float, width: int) -> str:
    """A number in so many columns, with as many decimals as nccl-tests gives it there."""
    digits = len(str(int(value))) if value >= 1 else 0
    for room, decimals in ((width - 2, 2), (width - 1, 1), (width + 1, 0)):
        if digits < room:
            return f"{value:>{width}.{decimals}f}"
    return f"{value:>{width}.{1 if width >= 7 else 0}e}"
