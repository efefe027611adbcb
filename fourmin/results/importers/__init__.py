"""Results of other benchmarks, MLPerf Training and DAWNBench, in this project's own model.

`find` says what lies in a folder, `mlperf` and `dawnbench` read it, `model` holds what they make
of it: the same timeline, run results and benchmark result as for this project's campaigns.
"""
