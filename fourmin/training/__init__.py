"""The training wing: the only part of fourmin that imports torch."""
