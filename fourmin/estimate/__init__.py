"""What a training run would take on a machine that nobody has here: an estimate, never a result.

Nothing here imports torch or runs a model: parameter sizes are data, times come from cost models
and from profiles whose every number names its source.
"""
