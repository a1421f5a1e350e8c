"""Commands that check before a run: `doctor`, `preflight` and `dryrun`."""
