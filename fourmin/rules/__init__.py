"""The rules: what a result must be to count, one function a rule, one module a group."""
