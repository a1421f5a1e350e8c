"""Commands that show runs: `view`, `diagnose` and `compare`."""
