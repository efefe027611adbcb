"""Datasets on disk: their manifest, the embedded digits, and the check of a tree."""
