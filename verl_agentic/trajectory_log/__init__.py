"""The log of a run on disk: trajectories, updates, metrics and findings."""
