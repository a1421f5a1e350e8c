"""Alarms on the metrics of a run: their interface and the monitor that calls them."""
