"""The rooms of the package on their floors: what docs/architecture.md shows and tests hold."""

FLOORS = (
    ("base",),
    ("log", "system", "datasets"),
    ("recipe", "ruleset", "results"),
    ("ledger", "launch", "estimate", "training"),
    ("rules", "report"),
    ("campaign", "bench", "doctor"),
    ("cli",),
)
"""The rooms from the ground up. An import goes down, or to a room beside it, never up."""
