"""Commands that show a run: `view` and `diagnose`."""
