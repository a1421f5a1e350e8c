"""Timelines of running episodes, and statistics of their calls."""
