"""What this machine can run, and what is missing: looked at, never changed."""
