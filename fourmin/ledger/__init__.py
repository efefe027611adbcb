"""The ledger: what was planned, tried and left, in a chain that only grows."""
