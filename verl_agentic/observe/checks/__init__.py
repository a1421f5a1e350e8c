"""Checks of a run, one per file: alarms read metrics, during a run and after it; record checks read a run's folder."""
