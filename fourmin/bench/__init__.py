"""Benchmarks of parts of the harness: what this machine does, against its own ceilings."""
