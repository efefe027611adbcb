"""Run results and benchmark results, made from event logs alone, and their statistics."""
