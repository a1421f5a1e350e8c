"""The checks: each file has a function of its name that takes a `PlannedRun` and returns findings."""
