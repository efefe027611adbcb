"""What a run is: the configuration and its presets, schedule, buckets, optimizers, all-reduces.

Nothing here imports torch: plans are made, checked and estimated without a training stack.
"""
