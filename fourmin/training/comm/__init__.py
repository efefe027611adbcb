"""Gradient communication: all-reduce algorithms, tensor fusion and agreement between ranks."""
