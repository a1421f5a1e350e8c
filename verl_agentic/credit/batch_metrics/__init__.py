"""Measurements of a batch: health, diversity, mask audit, success over attempts."""
