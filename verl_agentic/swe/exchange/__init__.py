"""Rows of other datasets, and files that other harnesses read."""
