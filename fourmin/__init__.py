"""Time to train to a fixed accuracy, as a result that nobody could cherry-pick."""

__version__ = "0.1.0"
