"""Checks of a run before it starts: `PlannedRun` holds the facts, each check judges one aspect."""
