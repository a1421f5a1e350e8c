"""Records and report of a dry run."""
