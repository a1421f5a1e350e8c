"""Which checkpoints of a run are healthy, and which are kept."""
