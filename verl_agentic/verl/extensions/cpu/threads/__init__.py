"""Ray's interface in one process: actors are threads."""
