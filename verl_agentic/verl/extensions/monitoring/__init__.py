"""Monitoring of a run, which never changes training."""
