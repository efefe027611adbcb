FLOORS = (
    ("base",),
    ("log", "system", "datasets"),
    ("recipe", "ruleset", "results"),
    ("ledger", "launch", "estimate", "training"),
    ("rules", "report"),
    ("campaign", "bench", "doctor"),
    ("cli",),
)
