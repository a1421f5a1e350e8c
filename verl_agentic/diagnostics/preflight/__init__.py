"""What can be known of a run before it starts: `PlannedRun` is what was found, a check judges one side of it."""
