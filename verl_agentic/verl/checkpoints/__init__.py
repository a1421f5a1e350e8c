"""Healthy checkpoints of a run, and retention."""
